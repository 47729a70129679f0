//! The tables of an index file.
//!
//! A device has a *slot* of its app, and a broadcast is cut into ranges of slots. A freed slot goes
//! onto the free list and is used again before a new one is made. So an app uses as many slots as
//! it had devices at once, however often devices are removed and registered. A message does not
//! reach a device that took over a slot after the message was accepted, because the time of
//! registration, `born`, is compared.
//!
//! The ledger's tables are explained beside the code that uses them ([`super::ledger`]).
//!
//! Attribute values are replaced by codes from a dictionary, the table `word`, for each app and
//! attribute. A code keeps its meaning for as long as a device has it; a transaction that reads devices
//! reads their codes' values from the same snapshot.

use push_model::{app::AppKey, ids::AppId};
use push_sqlite::{Schema, StoreError};
use rusqlite::{Connection, OptionalExtension, Params, params};

pub(super) const SCHEMA: Schema = Schema {
    purpose: "push index",
    application_id: 0x5055_5349, // "PUSI"
    migrations: &[
        "
        CREATE TABLE app (
            -- Never used twice, so that a new app cannot inherit a removed one's devices.
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            -- NULL: the app was removed, and its rows are being deleted.
            namespace TEXT,
            name TEXT NOT NULL,
            -- NULL: the app was not created, but it has devices.
            record TEXT,
            devices INTEGER NOT NULL DEFAULT 0,
            slots INTEGER NOT NULL DEFAULT 0,
            UNIQUE (namespace, name)
        ) STRICT;
        CREATE TABLE word (
            app INTEGER NOT NULL,
            attribute INTEGER NOT NULL,
            code INTEGER NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (app, attribute, code)
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX word_value ON word (app, attribute, value);
        CREATE TABLE device (
            app INTEGER NOT NULL,
            slot INTEGER NOT NULL,
            client TEXT NOT NULL,
            born INTEGER NOT NULL,
            transport INTEGER NOT NULL,
            token TEXT,
            country INTEGER,
            language INTEGER,
            brand INTEGER,
            model INTEGER,
            os_version INTEGER,
            app_version INTEGER,
            PRIMARY KEY (app, slot)
        ) STRICT, WITHOUT ROWID;
        CREATE UNIQUE INDEX device_client ON device (app, client);
        CREATE TABLE free_slot (
            app INTEGER NOT NULL,
            slot INTEGER NOT NULL,
            PRIMARY KEY (app, slot)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE message (
            row INTEGER PRIMARY KEY,
            namespace TEXT NOT NULL,
            id BLOB NOT NULL,
            app TEXT NOT NULL,
            accepted_at INTEGER NOT NULL,
            expires_at INTEGER NOT NULL,
            copy INTEGER NOT NULL,
            keep_until INTEGER NOT NULL,
            recalled_at INTEGER,
            plan TEXT,
            targeted INTEGER NOT NULL DEFAULT 0,
            outcomes TEXT NOT NULL,
            UNIQUE (namespace, id)
        ) STRICT;
        CREATE INDEX message_keep_until ON message (keep_until);
        CREATE TABLE checkpoint (
            message INTEGER NOT NULL,
            strand TEXT NOT NULL,
            position INTEGER NOT NULL,
            PRIMARY KEY (message, strand)
        ) STRICT, WITHOUT ROWID;
    ",
        "
        CREATE TABLE message_2 (
            row INTEGER PRIMARY KEY,
            namespace TEXT NOT NULL,
            id BLOB NOT NULL,
            app TEXT NOT NULL,
            accepted_at INTEGER NOT NULL,
            -- These two are NULL until a worker begins a message that was recalled before that.
            expires_at INTEGER,
            copy INTEGER,
            keep_until INTEGER NOT NULL,
            recalled_at INTEGER,
            plan TEXT,
            targeted INTEGER NOT NULL DEFAULT 0,
            outcomes TEXT NOT NULL,
            retried TEXT NOT NULL DEFAULT '{}',
            UNIQUE (namespace, id)
        ) STRICT;
        INSERT INTO message_2 (row, namespace, id, app, accepted_at, expires_at, copy, keep_until,
                recalled_at, plan, targeted, outcomes)
            SELECT row, namespace, id, app, accepted_at, expires_at, copy, keep_until,
                recalled_at, plan, targeted, outcomes FROM message;
        DROP TABLE message;
        ALTER TABLE message_2 RENAME TO message;
        CREATE INDEX message_keep_until ON message (keep_until);
    ",
        // The app's theoretical arrival, in microseconds since 1970 (`push_model::pace`).
        "ALTER TABLE app ADD COLUMN paid_until INTEGER NOT NULL DEFAULT 0;",
        // A checkpoint was the index of a slot range and an offset in one number; at the end, all
        // bits set.
        "
        CREATE TABLE partition (
            message INTEGER NOT NULL,
            number INTEGER NOT NULL,
            state TEXT NOT NULL,
            leftovers TEXT NOT NULL,
            PRIMARY KEY (message, number)
        ) STRICT, WITHOUT ROWID;
        INSERT INTO partition (message, number, state, leftovers)
            SELECT message, CAST(strand AS INTEGER),
                iif(position = -1, 'end',
                    '- 0 ' || (position >> 32) || '.' || (position & 4294967295)), '[]'
            FROM checkpoint WHERE strand NOT LIKE 'retry-%';
        DROP TABLE checkpoint;
    ",
        "
        ALTER TABLE app ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
        -- How many apps of a name were removed, which is the generation of the next one.
        CREATE TABLE removed_app (
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            count INTEGER NOT NULL,
            PRIMARY KEY (namespace, name)
        ) STRICT, WITHOUT ROWID;
    ",
        // The forms of ledger entries are explained in the modules of `ledger`. A cost is about
        // what an entry takes in the file, with its share of free space in pages; it was measured.
        "
        CREATE TABLE ledger (
            space INTEGER PRIMARY KEY,
            namespace TEXT NOT NULL UNIQUE,
            -- The sum of the costs of its entries, which triggers keep.
            bytes INTEGER NOT NULL DEFAULT 0,
            -- The result of the last eviction round; NULL before the first.
            measured_at INTEGER,
            measured INTEGER,
            bound INTEGER,
            oldest INTEGER,
            -- How many entries were evicted, and the latest time at which one of them was accepted.
            forgotten INTEGER NOT NULL DEFAULT 0,
            forgotten_until INTEGER,
            -- The cursor: the last begun entry that the last round read.
            hand BLOB
        ) STRICT;
        -- The numbers of apps that have or had records.
        CREATE TABLE ledger_app (
            number INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE
        ) STRICT;

        -- Open entries that fit into a record.
        CREATE TABLE begun (
            space INTEGER NOT NULL,
            id BLOB NOT NULL,
            record BLOB NOT NULL,
            cost INTEGER AS ((length(record) + 24) * 107 / 100),
            PRIMARY KEY (space, id)
        ) STRICT, WITHOUT ROWID;
        -- Closed entries with an issued id, which sorts by time.
        CREATE TABLE finished (
            space INTEGER NOT NULL,
            id BLOB NOT NULL,
            record BLOB NOT NULL,
            cost INTEGER AS ((length(record) + 24) * 107 / 100),
            PRIMARY KEY (space, id)
        ) STRICT, WITHOUT ROWID;
        -- Closed entries with a derived id, in the order in which they were closed.
        CREATE TABLE finished_derived (
            space INTEGER NOT NULL,
            number INTEGER NOT NULL,
            id BLOB NOT NULL,
            record BLOB NOT NULL,
            cost INTEGER AS (length(record) + 62),
            PRIMARY KEY (space, number),
            UNIQUE (space, id)
        ) STRICT, WITHOUT ROWID;

        -- Whether every partition has ended and no device is pending.
        ALTER TABLE message ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE message ADD COLUMN cost INTEGER AS (
            200 + 5 * length(namespace) + length(app) + coalesce(length(plan), 0)
            + length(outcomes) + length(retried));
        ALTER TABLE partition ADD COLUMN cost INTEGER AS (
            12 + length(state) + length(leftovers));
        UPDATE message SET closed = 1
            WHERE CASE WHEN json_valid(plan) AND json_valid(outcomes) THEN
                targeted = outcomes ->> '$.sent' + outcomes ->> '$.expired'
                    + outcomes ->> '$.recalled'
                    + (SELECT coalesce(sum(value), 0) FROM json_each(outcomes, '$.failed'))
                AND json_array_length(plan, '$.strands') = (
                    SELECT count(*) FROM partition
                    WHERE message = row AND state = 'end'
                        AND number < json_array_length(plan, '$.strands'))
                END;
        CREATE INDEX message_closed ON message (namespace, accepted_at) WHERE closed = 1;
        CREATE INDEX message_open ON message (namespace, expires_at) WHERE closed = 0;
        INSERT INTO ledger (namespace, bytes)
            SELECT namespace, sum(cost + (
                SELECT coalesce(sum(cost), 0) FROM partition WHERE message = row))
            FROM message GROUP BY namespace;

        CREATE TRIGGER begun_added AFTER INSERT ON begun BEGIN
            UPDATE ledger SET bytes = bytes + NEW.cost WHERE space = NEW.space;
        END;
        CREATE TRIGGER begun_removed AFTER DELETE ON begun BEGIN
            UPDATE ledger SET bytes = bytes - OLD.cost WHERE space = OLD.space;
        END;
        CREATE TRIGGER finished_added AFTER INSERT ON finished BEGIN
            UPDATE ledger SET bytes = bytes + NEW.cost WHERE space = NEW.space;
        END;
        CREATE TRIGGER finished_removed AFTER DELETE ON finished BEGIN
            UPDATE ledger SET bytes = bytes - OLD.cost WHERE space = OLD.space;
        END;
        CREATE TRIGGER finished_derived_added AFTER INSERT ON finished_derived BEGIN
            UPDATE ledger SET bytes = bytes + NEW.cost WHERE space = NEW.space;
        END;
        CREATE TRIGGER finished_derived_removed AFTER DELETE ON finished_derived BEGIN
            UPDATE ledger SET bytes = bytes - OLD.cost WHERE space = OLD.space;
        END;
        CREATE TRIGGER message_added AFTER INSERT ON message BEGIN
            UPDATE ledger SET bytes = bytes + NEW.cost WHERE namespace = NEW.namespace;
        END;
        CREATE TRIGGER message_changed AFTER UPDATE ON message
            WHEN NEW.cost <> OLD.cost BEGIN
            UPDATE ledger SET bytes = bytes + NEW.cost - OLD.cost
                WHERE namespace = NEW.namespace;
        END;
        CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
            UPDATE ledger SET bytes = bytes - OLD.cost WHERE namespace = OLD.namespace;
        END;
        CREATE TRIGGER partition_added AFTER INSERT ON partition BEGIN
            UPDATE ledger SET bytes = bytes + NEW.cost
                WHERE namespace = (SELECT namespace FROM message WHERE row = NEW.message);
        END;
        CREATE TRIGGER partition_changed AFTER UPDATE ON partition
            WHEN NEW.cost <> OLD.cost BEGIN
            UPDATE ledger SET bytes = bytes + NEW.cost - OLD.cost
                WHERE namespace = (SELECT namespace FROM message WHERE row = NEW.message);
        END;
        CREATE TRIGGER partition_removed AFTER DELETE ON partition BEGIN
            UPDATE ledger SET bytes = bytes - OLD.cost
                WHERE namespace = (SELECT namespace FROM message WHERE row = OLD.message);
        END;
    ",
        "
        -- When a secret of an app was last used, in Unix milliseconds.
        CREATE TABLE secret_use (
            app INTEGER NOT NULL,
            name TEXT NOT NULL,
            used_at INTEGER NOT NULL,
            PRIMARY KEY (app, name)
        ) STRICT, WITHOUT ROWID;
        -- The audit trail, each event as JSON.
        CREATE TABLE audit (
            row INTEGER PRIMARY KEY AUTOINCREMENT,
            namespace TEXT NOT NULL,
            event TEXT NOT NULL
        ) STRICT;
        CREATE INDEX audit_of_namespace ON audit (namespace, row);
    ",
        "
        -- What an app uses of its quotas of messages (`push_model::usage`).
        CREATE TABLE app_usage (
            app INTEGER NOT NULL,
            hour TEXT NOT NULL,
            counts TEXT NOT NULL,
            PRIMARY KEY (app, hour)
        ) STRICT, WITHOUT ROWID;
    ",
        "
        -- What is left of broadcasts that are not finished (`push_model::open_broadcast`).
        CREATE TABLE open_broadcast (
            ledger INTEGER NOT NULL,
            message BLOB NOT NULL,
            broadcast BLOB NOT NULL,
            PRIMARY KEY (ledger, message)
        ) STRICT, WITHOUT ROWID;
    ",
        // An app that is on its way here from another store, as JSON; its record is NULL meanwhile.
        "ALTER TABLE app ADD COLUMN arrival TEXT;",
        // Values that no device has are freed by sweeps (`sqlite::devices::sweep`).
        "
        -- Whether a sweep has marked the value, and no registration has wanted it since.
        ALTER TABLE word ADD COLUMN retired INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE dictionary (
            app INTEGER NOT NULL,
            attribute INTEGER NOT NULL,
            -- The highest code that was ever used.
            made INTEGER NOT NULL DEFAULT 0,
            used INTEGER NOT NULL DEFAULT 0,
            bytes INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (app, attribute)
        ) STRICT, WITHOUT ROWID;
        INSERT INTO dictionary (app, attribute, made, used, bytes)
            SELECT app, attribute, max(code), count(*), sum(length(CAST(value AS BLOB)) + 96)
            FROM word GROUP BY app, attribute;
        CREATE TABLE free_code (
            app INTEGER NOT NULL,
            attribute INTEGER NOT NULL,
            code INTEGER NOT NULL,
            PRIMARY KEY (app, attribute, code)
        ) STRICT, WITHOUT ROWID;
        -- Grows with every value that is added or freed.
        ALTER TABLE app ADD COLUMN dictionary_version INTEGER NOT NULL DEFAULT 0;
        -- The number of the last sweep, when it was, in Unix seconds, and since then the values that
        -- were added and the times that there was no room.
        ALTER TABLE app ADD COLUMN sweep INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE app ADD COLUMN swept_at INTEGER;
        ALTER TABLE app ADD COLUMN grown INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE app ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
    ",
        // `push_model::registration` explains these. `renewed` is NULL for transports that do not keep it, and the
        // last three are NULL for a device that has not changed its transport lately. A partition of a broadcast
        // reads the devices that are in the partitions of one transport, and those that were a short time ago.
        "
        ALTER TABLE device ADD COLUMN serial INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE device ADD COLUMN renewed INTEGER;
        ALTER TABLE device ADD COLUMN transport_before INTEGER;
        ALTER TABLE device ADD COLUMN transport_since INTEGER;
        ALTER TABLE device ADD COLUMN transport_partition INTEGER;
        CREATE INDEX device_transport ON device (app, ifnull(transport_partition, transport), slot);
        CREATE INDEX device_transport_before ON device (app, transport_before, slot)
            WHERE transport_before IS NOT NULL;
    ",
        // Entries are kept by app, and so is the account of what they take: the apps that hold most lose
        // entries first. No build before this one was in service, so earlier entries are dropped.
        "
        DROP TABLE partition;
        DROP TABLE message;
        DROP TABLE begun;
        DROP TABLE finished;
        DROP TABLE finished_derived;
        DROP TABLE ledger_app;
        ALTER TABLE ledger DROP COLUMN bytes;
        ALTER TABLE ledger DROP COLUMN forgotten_until;
        UPDATE ledger SET hand = NULL;
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
            cost INTEGER AS ((length(record) + 25) * 107 / 100),
            PRIMARY KEY (app, id)
        ) STRICT, WITHOUT ROWID;
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
            cost INTEGER AS (length(record) + 63),
            PRIMARY KEY (app, number),
            UNIQUE (app, id)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE message (
            row INTEGER PRIMARY KEY,
            app INTEGER NOT NULL,
            id BLOB NOT NULL,
            accepted_at INTEGER NOT NULL,
            -- These two are NULL until a worker begins a message that was recalled before that.
            expires_at INTEGER,
            copy INTEGER,
            keep_until INTEGER NOT NULL,
            recalled_at INTEGER,
            plan TEXT,
            targeted INTEGER NOT NULL DEFAULT 0,
            outcomes TEXT NOT NULL,
            retried TEXT NOT NULL DEFAULT '{}',
            -- Whether every partition has ended and no device is pending.
            closed INTEGER NOT NULL DEFAULT 0,
            cost INTEGER AS (
                200 + coalesce(length(plan), 0) + length(outcomes) + length(retried)),
            UNIQUE (app, id)
        ) STRICT;
        CREATE INDEX message_keep_until ON message (keep_until);
        CREATE INDEX message_closed ON message (app, accepted_at) WHERE closed = 1;
        CREATE INDEX message_open ON message (app, expires_at) WHERE closed = 0;
        CREATE TABLE partition (
            message INTEGER NOT NULL,
            number INTEGER NOT NULL,
            state TEXT NOT NULL,
            leftovers TEXT NOT NULL,
            cost INTEGER AS (12 + length(state) + length(leftovers)),
            PRIMARY KEY (message, number)
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
        CREATE TRIGGER message_changed AFTER UPDATE ON message
            WHEN NEW.cost <> OLD.cost BEGIN
            UPDATE ledger_app SET bytes = bytes + NEW.cost - OLD.cost WHERE number = NEW.app;
        END;
        CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
            UPDATE ledger_app SET bytes = bytes - OLD.cost WHERE number = OLD.app;
        END;
        CREATE TRIGGER partition_added AFTER INSERT ON partition BEGIN
            UPDATE ledger_app SET bytes = bytes + NEW.cost
                WHERE number = (SELECT app FROM message WHERE row = NEW.message);
        END;
        CREATE TRIGGER partition_changed AFTER UPDATE ON partition
            WHEN NEW.cost <> OLD.cost BEGIN
            UPDATE ledger_app SET bytes = bytes + NEW.cost - OLD.cost
                WHERE number = (SELECT app FROM message WHERE row = NEW.message);
        END;
        CREATE TRIGGER partition_removed AFTER DELETE ON partition BEGIN
            UPDATE ledger_app SET bytes = bytes - OLD.cost
                WHERE number = (SELECT app FROM message WHERE row = OLD.message);
        END;
        ",
        // Entries that were evicted lately (`ledger::eviction::marks`).
        "
        CREATE TABLE evicted (
            row INTEGER PRIMARY KEY AUTOINCREMENT,
            space INTEGER NOT NULL,
            mark INTEGER NOT NULL,
            at INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX evicted_mark ON evicted (mark);
    ",
    ],
};

/// The id of this namespace's ledger, if it has one.
pub(super) fn ledger_id(sql: &Connection, namespace: &str) -> Result<Option<i64>, StoreError> {
    let find = "SELECT space FROM ledger WHERE namespace = ?1";
    Ok(sql.prepare_cached(find)?.query_row([namespace], |row| row.get(0)).optional()?)
}

/// The id of this namespace's ledger, which is created if there is none.
pub(super) fn create_ledger(sql: &Connection, namespace: &str) -> Result<i64, StoreError> {
    execute(sql, "INSERT OR IGNORE INTO ledger (namespace) VALUES (?1)", [namespace])?;
    let missing = || StoreError::Unreadable(format!("the file has no ledger of {namespace}"));
    ledger_id(sql, namespace)?.ok_or_else(missing)
}

/// Runs a statement, which stays prepared. Returns the number of changed rows.
pub(super) fn execute(
    sql: &Connection,
    statement: &str,
    with: impl Params,
) -> Result<usize, StoreError> {
    Ok(sql.prepare_cached(statement)?.execute(with)?)
}

/// The row of an app that exists or has devices.
pub(super) fn app_row(
    sql: &Connection,
    namespace: &str,
    app: &AppKey,
) -> Result<Option<i64>, StoreError> {
    let find = "SELECT id FROM app WHERE namespace = ?1 AND name = ?2 AND generation = ?3";
    let with = params![namespace, app.id.as_str(), app.generation.cast_signed()];
    Ok(sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?)
}

/// The generation of the app of this name; if there is none, of the next one.
pub(super) fn generation(
    sql: &Connection,
    namespace: &str,
    app: &AppId,
) -> Result<u64, StoreError> {
    let find = "SELECT count FROM removed_app WHERE namespace = ?1 AND name = ?2";
    let with = [namespace, app.as_str()];
    let count: Option<i64> =
        sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?;
    Ok(count.unwrap_or_default().cast_unsigned())
}
