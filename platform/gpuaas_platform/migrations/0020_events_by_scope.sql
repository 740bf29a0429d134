ALTER TABLE events RENAME COLUMN project_id TO scope;
ALTER TABLE event_horizons RENAME COLUMN project_id TO scope;
UPDATE events SET scope = coalesce(nullif({{document org_id}}, ''), 'platform') WHERE scope = '';
UPDATE event_horizons SET scope = 'platform' WHERE scope = ''
