-- Between two changes of an instance there can be many actions: tables of apps are read again while people look at them.
CREATE INDEX operations_changes ON operations (project_id, instance_id, operation_id) WHERE kind NOT IN ('action', 'preview');
