//! The use of an app's quotas of messages, in counts that are written now and then.
//!
//! Counting each message where it is accepted and where it ends would cost every push a write. So the
//! programs count in memory and add up what they counted about once a second: `ingest` what it accepted,
//! workers what they closed. Counts that a program has not written when it dies are lost, so no count may be
//! wrong for long: `ingest` settles lost counts of an app that it refuses, within two minutes after its last
//! message has ended ([`UsageHour::HELD`] says until when workers have some). And messages are counted by the
//! *hour* in which they were accepted, which is forgotten when none of its messages can wait and none of its
//! ledger entries is kept any more.
//!
//! Clocks of machines that differ do no harm: the hour of a message is that of its time of acceptance,
//! which travels with it.

use std::{fmt, str::FromStr, time::Duration};

use crate::{ids::AudienceKind, ledger::Retention, report::OVERDUE_AFTER, time::UnixMillis};

const HOUR: u64 = 3_600_000;

/// A message counts as waiting for at most this long, whatever its time to live: it bounds how many
/// hours are kept, and for how long a lost count is wrong.
pub const LONGEST_COUNTED: Duration = Duration::from_hours(31 * 24);

/// The kind of messages that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageKind {
    /// Pushes to named devices.
    Named,
    /// Broadcasts. Their ledger entries are kept for another time.
    Broadcast,
    /// Recalls of messages without a ledger entry, each of which makes one.
    EarlyRecall,
    /// No messages: until when a worker has messages of the app, or has put some off.
    Held,
    /// No messages: who settles lost counts in a minute.
    Settling,
}

impl UsageKind {
    const ALL: [Self; 5] =
        [Self::Named, Self::Broadcast, Self::EarlyRecall, Self::Held, Self::Settling];

    const fn letter(self) -> char {
        match self {
            Self::Named => 'n',
            Self::Broadcast => 'b',
            Self::EarlyRecall => 'r',
            Self::Held => 'h',
            Self::Settling => 's',
        }
    }
}

impl From<AudienceKind> for UsageKind {
    fn from(kind: AudienceKind) -> Self {
        match kind {
            AudienceKind::Named => Self::Named,
            AudienceKind::Broadcast => Self::Broadcast,
        }
    }
}

/// The messages of one kind that an app had accepted in one hour. Its text is the name under which
/// engines keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageHour {
    /// The kind of messages.
    pub kind: UsageKind,
    /// Hours since 1970.
    pub hour: u64,
}

impl UsageHour {
    /// Says until when workers have messages of the app.
    pub const HELD: Self = Self { kind: UsageKind::Held, hour: 0 };

    /// Says who settles lost counts in this minute since 1970.
    pub const fn settling(minute: u64) -> Self {
        Self { kind: UsageKind::Settling, hour: minute }
    }

    /// The hour of this time.
    pub fn of(kind: UsageKind, at: UnixMillis) -> Self {
        Self { kind, hour: at.0 / HOUR }
    }

    fn end(&self) -> UnixMillis {
        UnixMillis(self.hour.saturating_add(1).saturating_mul(HOUR)).min(UnixMillis::MAX)
    }
}

impl fmt::Display for UsageHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.letter(), self.hour)
    }
}

/// The text is not what [`UsageHour`] or [`UsageCounts`] is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a count of an app's messages")]
pub struct BadUsage;

impl FromStr for UsageHour {
    type Err = BadUsage;

    fn from_str(text: &str) -> Result<Self, BadUsage> {
        let find = |kind: &UsageKind| text.strip_prefix(kind.letter()).map(|hour| (*kind, hour));
        let (kind, hour) = UsageKind::ALL.iter().find_map(find).ok_or(BadUsage)?;
        Ok(Self { kind, hour: hour.parse().map_err(|_| BadUsage)? })
    }
}

/// The counts of one hour, or what is added to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageCounts {
    /// Messages that were accepted, without those that were found to be repeated requests; or early
    /// recalls.
    pub accepted: i64,
    /// Messages whose ledger entry was closed.
    pub closed: i64,
    /// Until when one of the messages can wait.
    pub waits_until: UnixMillis,
    /// The time until which the ledger keeps entries of the hour.
    pub kept_until: UnixMillis,
}

impl UsageCounts {
    /// Counts a message of one hour that expires at this time.
    pub fn new(hour: &UsageHour, expires_at: UnixMillis, retention: Retention) -> Self {
        let kept_for = match hour.kind {
            UsageKind::Named => retention.named,
            UsageKind::Broadcast => retention.broadcast,
            UsageKind::EarlyRecall => retention.named.max(retention.broadcast),
            UsageKind::Held | UsageKind::Settling => Duration::ZERO,
        };
        let longest = hour.end().plus(LONGEST_COUNTED);
        let waits_until = expires_at.plus(OVERDUE_AFTER).min(longest);
        Self { waits_until, kept_until: hour.end().plus(kept_for), ..Self::default() }
    }

    /// Counts nothing, and is kept until this time.
    pub fn until(time: UnixMillis) -> Self {
        Self { waits_until: time, kept_until: time, ..Self::default() }
    }

    /// Returns how many of the hour's messages count as waiting.
    pub fn waiting(&self, now: UnixMillis) -> u64 {
        if now > self.waits_until {
            return 0;
        }
        // If a count was lost, more messages of the hour may be closed than accepted.
        u64::try_from(self.accepted.saturating_sub(self.closed)).unwrap_or(0)
    }

    /// Adds other counts of the same hour.
    pub fn add(&mut self, more: &Self) {
        self.accepted = self.accepted.saturating_add(more.accepted);
        self.closed = self.closed.saturating_add(more.closed);
        self.waits_until = self.waits_until.max(more.waits_until);
        self.kept_until = self.kept_until.max(more.kept_until);
    }

    /// Returns true if nothing of the hour counts any more.
    pub fn is_over(&self, now: UnixMillis) -> bool {
        self.kept_until < now && (self.waits_until < now || self.accepted <= self.closed)
    }
}

impl fmt::Display for UsageCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accepted, closed, waits_until, kept_until } = self;
        write!(f, "{accepted} {closed} {} {}", waits_until.0, kept_until.0)
    }
}

impl FromStr for UsageCounts {
    type Err = BadUsage;

    fn from_str(text: &str) -> Result<Self, BadUsage> {
        let [accepted, closed, waits_until, kept_until] = *text.split(' ').collect::<Vec<_>>()
        else {
            return Err(BadUsage);
        };
        let time = |text: &str| text.parse().map(UnixMillis).map_err(|_| BadUsage);
        Ok(Self {
            accepted: accepted.parse().map_err(|_| BadUsage)?,
            closed: closed.parse().map_err(|_| BadUsage)?,
            waits_until: time(waits_until)?,
            kept_until: time(kept_until)?,
        })
    }
}

/// The use of an app at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Messages that were accepted and have no closed ledger entry yet.
    pub waiting: u64,
    /// Messages whose ledger entries are kept, or will be made.
    pub entries: u64,
    /// Ledger entries of recalls that came before their messages.
    pub early_recalls: u64,
    /// When the first of the ledger entries go.
    pub first_kept_until: Option<UnixMillis>,
}

impl Usage {
    /// Adds up the hours of an app.
    pub fn of(hours: &[(UsageHour, UsageCounts)], now: UnixMillis) -> Self {
        let mut usage = Self::default();
        for (hour, counts) in hours {
            let UsageCounts { accepted, kept_until, .. } = *counts;
            if matches!(hour.kind, UsageKind::Named | UsageKind::Broadcast) {
                usage.waiting = usage.waiting.saturating_add(counts.waiting(now));
            }
            let Ok(accepted @ 1..) = u64::try_from(accepted) else { continue };
            if now > kept_until {
                continue;
            }
            let of_kind = match hour.kind {
                UsageKind::Named | UsageKind::Broadcast => &mut usage.entries,
                UsageKind::EarlyRecall => &mut usage.early_recalls,
                UsageKind::Held | UsageKind::Settling => continue,
            };
            *of_kind = of_kind.saturating_add(accepted);
            let first = usage.first_kept_until.unwrap_or(UnixMillis::MAX);
            usage.first_kept_until = Some(first.min(kept_until));
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION: Retention =
        Retention { named: Duration::from_hours(48), broadcast: Duration::from_hours(168) };
    const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

    fn counts(kind: UsageKind, accepted: i64, closed: i64) -> (UsageHour, UsageCounts) {
        let hour = UsageHour::of(kind, NOW);
        let new = UsageCounts::new(&hour, NOW.plus_seconds(60), RETENTION);
        (hour, UsageCounts { accepted, closed, ..new })
    }

    #[test]
    fn an_hour_and_its_counts_keep_their_text() {
        for kind in UsageKind::ALL {
            let (hour, counts) = counts(kind, 7, -2);
            assert_eq!(
                (hour.to_string().parse(), counts.to_string().parse()),
                (Ok(hour), Ok(counts))
            );
        }
        for bad in ["", "n", "x7", "n-1", "1 2 3", "1 2 3 4 5", "1 2 3 -4", "a 2 3 4"] {
            assert!(
                bad.parse::<UsageHour>().is_err() && bad.parse::<UsageCounts>().is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn what_waits_is_what_was_accepted_and_not_closed_while_it_can_wait() {
        let hours = [
            counts(UsageKind::Named, 10, 4),
            counts(UsageKind::Broadcast, 3, 1),
            counts(UsageKind::EarlyRecall, 5, 0),
        ];
        let usage = Usage::of(&hours, NOW);
        assert_eq!((usage.waiting, usage.entries, usage.early_recalls), (8, 13, 5));
        let expired = NOW.plus_seconds(61).plus(OVERDUE_AFTER);
        let usage = Usage::of(&hours, expired);
        assert_eq!((usage.waiting, usage.entries), (0, 13), "what a crash did not count is over");
        let later = NOW.plus(Duration::from_hours(50));
        assert_eq!(
            (Usage::of(&hours, later).entries, Usage::of(&hours, later).early_recalls),
            (3, 5)
        );
        assert!(hours[0].1.is_over(later) && !hours[1].1.is_over(later));
    }

    #[test]
    fn an_hour_of_which_a_count_was_lost_takes_nothing_from_another() {
        let lost = counts(UsageKind::Named, 2, 9);
        let other =
            (UsageHour { hour: lost.0.hour - 1, ..lost.0 }, counts(UsageKind::Named, 5, 0).1);
        assert_eq!(Usage::of(&[lost, other], NOW).waiting, 5);
    }

    #[test]
    fn no_time_to_live_keeps_an_hour_for_ever() {
        let hour = UsageHour::of(UsageKind::Named, NOW);
        let endless = UsageCounts::new(&hour, UnixMillis::MAX, RETENTION);
        let lost = UsageCounts { accepted: 1, ..endless };
        assert!(lost.is_over(NOW.plus(LONGEST_COUNTED).plus(Duration::from_hours(2))));
        assert!(!lost.is_over(NOW.plus(LONGEST_COUNTED)));
    }
}
