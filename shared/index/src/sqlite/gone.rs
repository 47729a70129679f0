//! Devices that providers reported as gone: counts for each app, and a table of removed devices.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    device::TransportKind,
    gone::{GONE_LISTED, GONE_LISTED_FOR, GoneReports, GoneWindow, RemovedDevice},
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::{IndexError, sqlite::execute};
use rusqlite::{Connection, OptionalExtension, params};

use super::{SqliteIndex, apps::app_row};
use crate::{GoneDevices, RemovedPage};

/// Adds a device to the list.
pub(super) fn list(sql: &Connection, app: i64, device: &RemovedDevice) -> Result<(), StoreError> {
    let RemovedDevice { removed_at, transport, code, client_id } = device;
    let insert = "INSERT INTO removed_device (app, removed_at, transport, code, client)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let at = removed_at.0.cast_signed();
    execute(sql, insert, params![app, at, transport.code(), code, client_id.as_str()])?;
    Ok(())
}

/// Drops what is beyond the bounds of the list.
pub(super) fn trim(sql: &Connection, app: i64, now: UnixMillis) -> Result<(), StoreError> {
    let old = "DELETE FROM removed_device WHERE app = ?1 AND removed_at < ?2";
    execute(sql, old, params![app, now.minus(GONE_LISTED_FOR).0.cast_signed()])?;
    let beyond = "DELETE FROM removed_device WHERE row IN (
        SELECT row FROM removed_device WHERE app = ?1
        ORDER BY removed_at DESC, row DESC LIMIT -1 OFFSET ?2)";
    execute(sql, beyond, params![app, number(GONE_LISTED as u64)])?;
    Ok(())
}

/// A number as SQLite stores it.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn stopped(sql: &Connection, app: i64) -> Result<Option<UnixMillis>, StoreError> {
    let find = "SELECT until FROM removals_stopped WHERE app = ?1";
    let until: Option<i64> =
        sql.prepare_cached(find)?.query_row([app], |row| row.get(0)).optional()?;
    Ok(until.map(|until| UnixMillis(until.cast_unsigned())))
}

fn count(
    sql: &Connection,
    app: i64,
    reported: u64,
    window: &GoneWindow,
) -> Result<GoneReports, StoreError> {
    let (first, last) = (number(window.first.0), number(window.last.0));
    let drop = "DELETE FROM gone_report WHERE app = ?1 AND part NOT BETWEEN ?2 AND ?3";
    execute(sql, drop, params![app, first, last])?;
    let add = "INSERT INTO gone_report (app, part, reported) VALUES (?1, ?2, ?3)
        ON CONFLICT (app, part) DO UPDATE SET reported = reported + excluded.reported";
    execute(sql, add, params![app, number(window.part.0), number(reported)])?;
    let sum = "SELECT sum(reported) FROM gone_report WHERE app = ?1";
    let sum: i64 = sql.prepare_cached(sum)?.query_row([app], |row| row.get(0))?;
    Ok(GoneReports { reported: sum.unsigned_abs(), stopped_until: stopped(sql, app)? })
}

#[async_trait]
impl GoneDevices for SqliteIndex {
    async fn count_gone(
        &self,
        app: &AppKey,
        reported: u64,
        window: Duration,
        now: UnixMillis,
    ) -> Result<GoneReports, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let window = GoneWindow::new(window, now);
        let count = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) => count(sql, app, reported, &window),
            None => Ok(GoneReports::default()),
        };
        Ok(self.database.write(count).await?)
    }

    async fn stop_removals(
        &self,
        app: &AppKey,
        before: Option<UnixMillis>,
        until: UnixMillis,
    ) -> Result<bool, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let stop = move |sql: &Connection| {
            let Some(app) = app_row(sql, &namespace, &app)? else { return Ok(false) };
            if stopped(sql, app)? != before {
                return Ok(false);
            }
            let save = "INSERT OR REPLACE INTO removals_stopped (app, until) VALUES (?1, ?2)";
            execute(sql, save, params![app, until.0.cast_signed()])?;
            Ok(true)
        };
        Ok(self.database.write(stop).await?)
    }

    async fn removals_stopped_until(&self, app: &AppKey) -> Result<Option<UnixMillis>, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let find = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) => stopped(sql, app),
            None => Ok(None),
        };
        Ok(self.database.read(find).await?)
    }

    async fn removed_devices(
        &self,
        app: &AppKey,
        since: UnixMillis,
        from: usize,
        limit: usize,
    ) -> Result<RemovedPage, IndexError> {
        let (namespace, app) = (self.namespace(), app.clone());
        let list = move |sql: &Connection| match app_row(sql, &namespace, &app)? {
            Some(app) => read(sql, app, since, from, limit),
            None => Ok(RemovedPage::default()),
        };
        Ok(self.database.read(list).await?)
    }
}

fn read(
    sql: &Connection,
    app: i64,
    since: UnixMillis,
    from: usize,
    limit: usize,
) -> Result<RemovedPage, StoreError> {
    let list = "SELECT removed_at, transport, code, client FROM removed_device
        WHERE app = ?1 AND removed_at >= ?2 ORDER BY removed_at DESC, row DESC LIMIT ?3 OFFSET ?4";
    let mut statement = sql.prepare_cached(list)?;
    let (most, skip) = (number(limit as u64), number(from as u64));
    let mut rows = statement.query(params![app, number(since.0), most, skip])?;
    let mut devices = Vec::new();
    while let Some(row) = rows.next()? {
        let unreadable = || StoreError::Unreadable("a device that was removed as gone".to_owned());
        let (code, client): (String, String) = (row.get(2)?, row.get(3)?);
        devices.push(RemovedDevice {
            removed_at: UnixMillis(row.get::<_, i64>(0)?.cast_unsigned()),
            transport: TransportKind::from_code(row.get(1)?).ok_or_else(unreadable)?,
            code: code.into(),
            client_id: client.parse().map_err(|_| unreadable())?,
        });
    }
    let next = (limit > 0 && devices.len() == limit).then(|| from.saturating_add(limit));
    Ok(RemovedPage { devices, next })
}
