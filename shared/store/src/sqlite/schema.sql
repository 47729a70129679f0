-- Apps.

CREATE TABLE app (
    -- Never used twice, so that a new app cannot inherit a removed one's devices.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- NULL: the app was removed, and its rows are being deleted.
    namespace TEXT,
    name TEXT NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    -- NULL: the app was not created, but it has devices.
    record TEXT,
    -- An app that is on its way here from another store, as JSON; its record is NULL meanwhile.
    arrival TEXT,
    devices INTEGER NOT NULL DEFAULT 0,
    slots INTEGER NOT NULL DEFAULT 0,
    -- The app's theoretical arrival, in microseconds since 1970 (`push_model::pace`).
    paid_until INTEGER NOT NULL DEFAULT 0,
    -- Grows with every dictionary value that is added or freed.
    dictionary_version INTEGER NOT NULL DEFAULT 0,
    -- The number and time (Unix seconds) of the last sweep; the values added since, and how often a
    -- value found no room since.
    sweep INTEGER NOT NULL DEFAULT 0,
    swept_at INTEGER,
    grown INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    UNIQUE (namespace, name)
) STRICT;
-- The number of removed apps of each name, which is the generation of the next one.
CREATE TABLE removed_app (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;
-- The last use of each secret of an app, in Unix milliseconds.
CREATE TABLE secret_use (
    app INTEGER NOT NULL,
    name TEXT NOT NULL,
    used_at INTEGER NOT NULL,
    PRIMARY KEY (app, name)
) STRICT, WITHOUT ROWID;
-- What an app uses of its quotas of messages (`push_model::usage`).
CREATE TABLE app_usage (
    app INTEGER NOT NULL,
    hour TEXT NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (app, hour)
) STRICT, WITHOUT ROWID;
-- Devices of an app that were removed because their providers reported them as gone.
CREATE TABLE removed_device (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    removed_at INTEGER NOT NULL,
    transport INTEGER NOT NULL,
    code TEXT NOT NULL,
    client TEXT NOT NULL
) STRICT;
CREATE INDEX removed_device_of_app ON removed_device (app, removed_at, row);
-- How many devices of an app were reported as gone in each part of a window (`push_model::gone`).
CREATE TABLE gone_report (
    app INTEGER NOT NULL,
    part INTEGER NOT NULL,
    reported INTEGER NOT NULL,
    PRIMARY KEY (app, part)
) STRICT, WITHOUT ROWID;
-- Until when gone devices of an app are not removed, because too many were reported.
CREATE TABLE removals_stopped (
    app INTEGER PRIMARY KEY,
    until INTEGER NOT NULL
) STRICT;
-- The audit trail, each event as JSON.
CREATE TABLE audit (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    event TEXT NOT NULL
) STRICT;
CREATE INDEX audit_of_namespace ON audit (namespace, row);
-- The keys of the admin API: the digest of each, the rest as JSON, and the time of its last use, 0 for none.
CREATE TABLE admin_key (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    digest BLOB NOT NULL,
    record TEXT NOT NULL,
    used_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, name),
    UNIQUE (namespace, digest)
) STRICT, WITHOUT ROWID;
-- Running programs, each as JSON, and until when (Unix milliseconds) it counts as running.
CREATE TABLE component (
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    ends_at INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;

-- Devices and their dictionaries.

CREATE TABLE device (
    app INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    client TEXT NOT NULL,
    born INTEGER NOT NULL,
    serial INTEGER NOT NULL,
    -- NULL for transports that do not keep it (`push_model::registration`).
    renewed INTEGER,
    -- The codes of carriers (`push_model::device::Carrier`).
    transport INTEGER NOT NULL,
    -- These three are NULL unless the device has changed its carrier lately.
    transport_before INTEGER,
    transport_since INTEGER,
    transport_partition INTEGER,
    token TEXT,
    country INTEGER,
    language INTEGER,
    brand INTEGER,
    model INTEGER,
    os_version INTEGER,
    app_version INTEGER,
    -- The codes of what the app says of the device (`sqlite::devices::profile`); NULL for none.
    custom BLOB,
    topics BLOB,
    user_id TEXT,
    PRIMARY KEY (app, slot)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX device_client ON device (app, client);
-- A partition of a broadcast reads the devices that belong to the partitions of one carrier now,
-- and those that did a short time ago.
CREATE INDEX device_transport ON device (app, ifnull(transport_partition, transport), slot);
CREATE INDEX device_transport_before ON device (app, transport_before, slot)
    WHERE transport_before IS NOT NULL;
CREATE INDEX device_user ON device (app, user_id, client) WHERE user_id IS NOT NULL;
CREATE TABLE free_slot (
    app INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    PRIMARY KEY (app, slot)
) STRICT, WITHOUT ROWID;
CREATE TABLE word (
    app INTEGER NOT NULL,
    -- One of the six attributes, one that the app declared, or topics (`sqlite::devices::dictionary`).
    attribute INTEGER NOT NULL,
    code INTEGER NOT NULL,
    value TEXT NOT NULL,
    -- 1 if a sweep has marked the value and no registration has wanted it since
    -- (`sqlite::devices::sweep`).
    retired INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (app, attribute, code)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX word_value ON word (app, attribute, value);
CREATE TABLE dictionary (
    app INTEGER NOT NULL,
    attribute INTEGER NOT NULL,
    -- The highest code that was ever used.
    made INTEGER NOT NULL DEFAULT 0,
    used INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (app, attribute)
) STRICT, WITHOUT ROWID;
CREATE TABLE free_code (
    app INTEGER NOT NULL,
    attribute INTEGER NOT NULL,
    code INTEGER NOT NULL,
    PRIMARY KEY (app, attribute, code)
) STRICT, WITHOUT ROWID;

-- The ledger. Entries are kept by app, and so is the account of what they take: the apps that hold
-- most lose entries first. The modules of `ledger` explain the forms of entries. A cost is about
-- what an entry takes in the file, with its share of free space in pages; it was measured.

CREATE TABLE ledger (
    space INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL UNIQUE,
    -- The result of the last eviction round; NULL before the first.
    measured_at INTEGER,
    measured INTEGER,
    bound INTEGER,
    oldest INTEGER,
    -- The number of evicted entries.
    forgotten INTEGER NOT NULL DEFAULT 0,
    -- The cursor: the last begun entry that the last round read.
    hand BLOB
) STRICT;
-- The apps that have or had entries. A number belongs to one app of one ledger, and is never used
-- twice.
CREATE TABLE ledger_app (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL,
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    -- The sum of the costs of its entries, which triggers keep.
    bytes INTEGER NOT NULL DEFAULT 0,
    -- The latest time at which one of its evicted entries was accepted.
    forgotten_until INTEGER,
    UNIQUE (space, name, generation)
) STRICT;
-- Open entries that fit into a record.
CREATE TABLE begun (
    app INTEGER NOT NULL,
    id BLOB NOT NULL,
    record BLOB NOT NULL,
    -- When the message was accepted, if its id was derived: that of an issued id says so itself.
    at INTEGER,
    cost INTEGER AS ((length(record) + 25) * 107 / 100),
    PRIMARY KEY (app, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX begun_derived ON begun (app, at, id) WHERE at IS NOT NULL;
-- Closed entries with an issued id, which sorts by time.
CREATE TABLE finished (
    app INTEGER NOT NULL,
    id BLOB NOT NULL,
    record BLOB NOT NULL,
    cost INTEGER AS ((length(record) + 25) * 107 / 100),
    PRIMARY KEY (app, id)
) STRICT, WITHOUT ROWID;
-- Closed entries with a derived id, in the order in which they were closed.
CREATE TABLE finished_derived (
    app INTEGER NOT NULL,
    number INTEGER NOT NULL,
    id BLOB NOT NULL,
    record BLOB NOT NULL,
    -- When the message was accepted.
    at INTEGER NOT NULL,
    cost INTEGER AS (length(record) + 112),
    PRIMARY KEY (app, number),
    UNIQUE (app, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX finished_derived_at ON finished_derived (app, at, id);
-- Entries that do not fit into a record.
CREATE TABLE message (
    row INTEGER PRIMARY KEY,
    app INTEGER NOT NULL,
    id BLOB NOT NULL,
    accepted_at INTEGER NOT NULL,
    -- These two are NULL until a worker begins a message that was recalled before that.
    expires_at INTEGER,
    dedup_nonce INTEGER,
    keep_until INTEGER NOT NULL,
    recalled_at INTEGER,
    plan TEXT,
    targeted INTEGER NOT NULL DEFAULT 0,
    outcomes TEXT NOT NULL,
    retried TEXT NOT NULL DEFAULT '{}',
    -- 1 if every partition has ended and no device is pending.
    closed INTEGER NOT NULL DEFAULT 0,
    -- 1 if the id was derived: it is not of version 7.
    is_derived INTEGER AS (substr(hex(id), 13, 1) <> '7'),
    -- The content and the sender of a broadcast. A blob, so that its length is in bytes.
    broadcast BLOB,
    cost INTEGER AS (200 + coalesce(length(plan), 0) + length(outcomes) + length(retried)
        + coalesce(length(broadcast), 0)),
    UNIQUE (app, id)
) STRICT;
CREATE INDEX message_keep_until ON message (keep_until);
CREATE INDEX message_closed ON message (app, accepted_at) WHERE closed = 1;
CREATE INDEX message_derived ON message (app, accepted_at, id) WHERE is_derived = 1;
CREATE INDEX message_open ON message (app, expires_at) WHERE closed = 0;
CREATE TABLE partition (
    message INTEGER NOT NULL,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    leftovers TEXT NOT NULL,
    cost INTEGER AS (12 + length(state) + length(leftovers)),
    PRIMARY KEY (message, number)
) STRICT, WITHOUT ROWID;
-- Entries that were evicted lately (`ledger::eviction::marks`).
CREATE TABLE evicted (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX evicted_mark ON evicted (mark);
-- What is left of broadcasts that are not finished (`push_model::open_broadcast`).
CREATE TABLE open_broadcast (
    ledger INTEGER NOT NULL,
    message BLOB NOT NULL,
    broadcast BLOB NOT NULL,
    PRIMARY KEY (ledger, message)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER begun_added AFTER INSERT ON begun BEGIN
    UPDATE ledger_app SET bytes = bytes + NEW.cost WHERE number = NEW.app;
END;
CREATE TRIGGER begun_removed AFTER DELETE ON begun BEGIN
    UPDATE ledger_app SET bytes = bytes - OLD.cost WHERE number = OLD.app;
END;
CREATE TRIGGER finished_added AFTER INSERT ON finished BEGIN
    UPDATE ledger_app SET bytes = bytes + NEW.cost WHERE number = NEW.app;
END;
CREATE TRIGGER finished_removed AFTER DELETE ON finished BEGIN
    UPDATE ledger_app SET bytes = bytes - OLD.cost WHERE number = OLD.app;
END;
CREATE TRIGGER finished_derived_added AFTER INSERT ON finished_derived BEGIN
    UPDATE ledger_app SET bytes = bytes + NEW.cost WHERE number = NEW.app;
END;
CREATE TRIGGER finished_derived_removed AFTER DELETE ON finished_derived BEGIN
    UPDATE ledger_app SET bytes = bytes - OLD.cost WHERE number = OLD.app;
END;
CREATE TRIGGER message_added AFTER INSERT ON message BEGIN
    UPDATE ledger_app SET bytes = bytes + NEW.cost WHERE number = NEW.app;
END;
CREATE TRIGGER message_changed AFTER UPDATE ON message WHEN NEW.cost <> OLD.cost BEGIN
    UPDATE ledger_app SET bytes = bytes + NEW.cost - OLD.cost WHERE number = NEW.app;
END;
CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
    UPDATE ledger_app SET bytes = bytes - OLD.cost WHERE number = OLD.app;
END;
CREATE TRIGGER partition_added AFTER INSERT ON partition BEGIN
    UPDATE ledger_app SET bytes = bytes + NEW.cost
        WHERE number = (SELECT app FROM message WHERE row = NEW.message);
END;
CREATE TRIGGER partition_changed AFTER UPDATE ON partition WHEN NEW.cost <> OLD.cost BEGIN
    UPDATE ledger_app SET bytes = bytes + NEW.cost - OLD.cost
        WHERE number = (SELECT app FROM message WHERE row = NEW.message);
END;
CREATE TRIGGER partition_removed AFTER DELETE ON partition BEGIN
    UPDATE ledger_app SET bytes = bytes - OLD.cost
        WHERE number = (SELECT app FROM message WHERE row = OLD.message);
END;
