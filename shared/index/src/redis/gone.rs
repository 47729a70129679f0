//! Devices that providers reported as gone: a hash of counts for each app, and a list of removed devices.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    gone::{
        BadRemovedDevice, GONE_LISTED, GONE_LISTED_FOR, GoneReports, GoneWindow, RemovedDevice,
    },
    time::UnixMillis,
};

use push_store::{IndexError, redis::connection::reply};

use super::RedisIndex;
use crate::{GoneDevices, RemovedPage};

/// Devices that one script call adds to a list.
const LISTED_AT_ONCE: usize = 1000;

impl RedisIndex {
    /// Adds devices to the list.
    pub(super) async fn list_gone(
        &self,
        app: &AppKey,
        devices: &[RemovedDevice],
        now: UnixMillis,
    ) -> Result<(), IndexError> {
        for some in devices.chunks(LISTED_AT_ONCE) {
            let keys = [&*self.keys.removed_devices(app), &*self.keys.removed(app)];
            let mut list = self.scripts.list_gone.call(&keys);
            list.arg(GONE_LISTED).arg(GONE_LISTED_FOR.as_secs() * 1000);
            list.arg(now.minus(GONE_LISTED_FOR).0);
            for device in some {
                list.arg(device.to_string());
            }
            list.run(&self.quick).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl GoneDevices for RedisIndex {
    async fn count_gone(
        &self,
        app: &AppKey,
        reported: u64,
        window: Duration,
        now: UnixMillis,
    ) -> Result<GoneReports, IndexError> {
        let keys = [&*self.keys.gone_reports(app), &*self.keys.removed(app)];
        let GoneWindow { part, first, last } = GoneWindow::new(window, now);
        let mut count = self.scripts.count_gone.call(&keys);
        count.arg(reported).arg(part.0).arg(first.0).arg(last.0).arg(now.plus(window * 2).0);
        let mut answer = reply::list(count.run(&self.quick).await?)?.into_iter();
        let mut number = || reply::number(answer.next().unwrap_or_default());
        match (number()?, number()?) {
            (Some(reported), Some(stopped)) => {
                Ok(GoneReports { reported, stopped_until: stopped_until(stopped) })
            }
            _ => Err(IndexError::Corrupt("counts of gone devices".to_owned())),
        }
    }

    async fn stop_removals(
        &self,
        app: &AppKey,
        before: Option<UnixMillis>,
        until: UnixMillis,
    ) -> Result<bool, IndexError> {
        let keys = [&*self.keys.gone_reports(app), &*self.keys.removed(app)];
        let mut stop = self.scripts.stop_removals.call(&keys);
        stop.arg(before.unwrap_or_default().0).arg(until.0);
        Ok(reply::number(stop.run(&self.quick).await?)? == Some(1))
    }

    async fn removals_stopped_until(&self, app: &AppKey) -> Result<Option<UnixMillis>, IndexError> {
        let mut get = redis::cmd("HGET");
        get.arg(self.keys.gone_reports(app)).arg("stopped");
        Ok(reply::number(self.quick.read(&get).await?)?.and_then(stopped_until))
    }

    async fn removed_devices(
        &self,
        app: &AppKey,
        since: UnixMillis,
        from: usize,
        limit: usize,
    ) -> Result<RemovedPage, IndexError> {
        let Some(last) = limit.checked_sub(1) else { return Ok(RemovedPage::default()) };
        let mut read = redis::cmd("LRANGE");
        read.arg(self.keys.removed_devices(app)).arg(from).arg(from.saturating_add(last));
        let listed = reply::list(self.bulk.read(&read).await?)?.into_iter();
        let parse = |value| {
            let unreadable = |bad: BadRemovedDevice| IndexError::Corrupt(bad.to_string());
            reply::text(value)?.parse::<RemovedDevice>().map_err(unreadable)
        };
        let mut devices = listed.map(parse).collect::<Result<Vec<_>, _>>()?;
        // Devices are listed in about the order of their times: workers' clocks differ.
        let goes_on = devices.len() == limit && devices.iter().any(|gone| gone.removed_at >= since);
        devices.retain(|gone| gone.removed_at >= since);
        Ok(RemovedPage { devices, next: goes_on.then(|| from.saturating_add(limit)) })
    }
}

fn stopped_until(millis: u64) -> Option<UnixMillis> {
    (millis > 0).then_some(UnixMillis(millis))
}
