CREATE TABLE unbound_accounts (service_account_id TEXT PRIMARY KEY);
INSERT INTO unbound_accounts (service_account_id)
    SELECT service_account_id FROM service_accounts WHERE state <> 'deleted'
