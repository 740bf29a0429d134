UPDATE machine_grants SET document = replace(document, '"serial":' || serial || ',', '"serial":"' || serial || '",');
UPDATE events SET document = replace(replace(document, '"serial":', '"serial":"'), '},"version":', '"},"version":') WHERE document LIKE '%"type":"access.machine.granted"%';
UPDATE events SET document = replace(replace(document, '"serial":', '"serial":"'), ',"ended_by":', '","ended_by":') WHERE document LIKE '%"type":"access.machine.ended"%'
