//! The faults of a step: one list, which both drivers choose from.
//!
//! A step is one call of a worker into an engine or a transport. Which faults make sense at it
//! depends on what is called; those of the process and of the world make sense at any.

use std::{fmt, str::FromStr, time::Duration};

/// Longer than a worker may rely on what it knows about recalls.
pub(crate) const SLOW: Duration = Duration::from_millis(700);
/// Time for which a provider throttles a device.
pub(crate) const THROTTLED: Duration = Duration::from_secs(2);
/// Time for which a provider throttles an account.
pub(crate) const HELD: Duration = Duration::from_secs(3);
/// Time until an account that a provider does not accept is repaired.
pub(crate) const BROKEN: Duration = Duration::from_secs(5);
/// Delay of a slow provider's answer: long enough that a run without its queue message renews its
/// claim several times.
pub(crate) const LATE_ANSWER: Duration = Duration::from_secs(10);
/// Duration of a freeze: longer than the broker takes to notice it.
pub(crate) const FROZEN: Duration = Duration::from_secs(12);
/// Time that the broker takes to notice that a process is dead or frozen.
pub(crate) const NOTICE: Duration = Duration::from_millis(200);
/// Time that a process takes to notice that the broker ended its session, if it gets no close.
pub(crate) const UNNOTICED: Duration = Duration::from_secs(5);
/// Time for which a broker with an alarm keeps a publisher waiting.
pub(crate) const BLOCKED: Duration = Duration::from_secs(40);
/// Delay after which a lost publish arrives after all.
pub(crate) const ARRIVES: Duration = Duration::from_secs(2);
/// Delay after which a lost write takes effect after all: between two steps of its worker, and after
/// several of its tries.
pub(crate) const GHOST_SOON: Duration = Duration::from_millis(51);
/// See [`GHOST_SOON`].
pub(crate) const GHOST_LATE: Duration = Duration::from_secs(3);

/// Silence of the index, as a multiple of the time for which a message is held: long enough that a message is
/// handed on once.
pub(crate) const SILENT: f64 = 1.5;
/// See [`SILENT`]. Many more hand-ons in a row than any bounded list of them would name.
pub(crate) const SILENT_LONG: f64 = 100.0;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A fault, at one step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Fault { $($(#[$doc])* $name,)* }

        impl Fault {
            /// Every fault.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in a schedule.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

faults! {
    /// The process dies; the step takes no effect.
    CrashBefore = "crash-before",
    /// The process dies; the step took effect.
    CrashAfter = "crash-after",
    /// The process dies when half of a batch has received it.
    CrashMidway = "crash-midway",
    /// The broker ends the process's session: it gives what the process holds to others.
    CutOff = "cut-off",
    /// The same, but the process notices only after [`UNNOTICED`].
    CutOffUnnoticed = "cut-off-unnoticed",
    /// The process is frozen for [`FROZEN`], and the broker ends its session meanwhile.
    Freeze = "freeze",
    /// The process is told to stop, and another one starts.
    Stop = "stop",
    /// The process's clock is ahead from now on, by less than the allowance.
    ClockAhead = "clock-ahead",
    /// The process's clock is behind from now on, by less than the allowance.
    ClockBehind = "clock-behind",
    /// The step takes [`SLOW`] before its effect.
    Slow = "slow",
    /// The step takes [`SLOW`] after its effect.
    Late = "late",

    /// The transport answers [`LATE_ANSWER`] after the devices have received the batch.
    LateAnswer = "late-answer",

    /// The answer is lost, and the step took no effect.
    LostBefore = "lost-before",
    /// The answer is lost, and the step took effect.
    LostAfter = "lost-after",
    /// The answer is lost, and the step takes effect after [`GHOST_SOON`].
    GhostSoon = "ghost-soon",
    /// The answer is lost, and the step takes effect after [`GHOST_LATE`].
    GhostLate = "ghost-late",
    /// The process gets no answer from the index for [`SILENT`] holds, and the step takes effect
    /// just before the next write of another handler about its message.
    Overtaken = "overtaken",
    /// No process gets an answer from the index for [`SILENT`] holds, and no step takes effect.
    Silent = "silent",
    /// The same for [`SILENT_LONG`] holds.
    SilentLong = "silent-long",
    /// The index cannot be reached.
    Unreachable = "unreachable",
    /// The index refuses this write.
    RefuseOnce = "refuse-1",
    /// The index refuses writes for longer than a worker holds a message.
    RefuseLong = "refuse-8",

    /// A publish fails, and the message is not stored.
    PublishLost = "publish-lost",
    /// A publish fails, and the message is stored.
    PublishStored = "publish-stored",
    /// A publish fails, and the message is stored after [`ARRIVES`].
    PublishArrives = "publish-arrives",
    /// The broker blocks publishers for [`BLOCKED`], then takes the message.
    Blocked = "blocked",
    /// A delayed message comes as late as an engine may deliver it.
    DelayedLonger = "delayed-longer",
    /// The broker never learns of an ack, and hands the message out again.
    AckLost = "ack-lost",

    /// The same, after the closed entries of pushes to named devices were evicted.
    AckLostEvicted = "ack-lost-evicted",

    /// One device receives the message and never answers.
    OneUndecided = "one-undecided",
    /// One device does not receive the message, and its outcome stays unknown.
    OneUndecidedLost = "one-undecided-lost",
    /// One device is told to be tried later.
    OneLater = "one-later",
    /// One device is gone.
    OneGone = "one-gone",
    /// One device is gone since a time before it registered.
    OneGoneBefore = "one-gone-before",
    /// One device registers again with another address before its old one is reported as gone.
    OneGoneMoved = "one-gone-moved",
    /// One device registers again with the same address before that is reported as gone.
    OneGoneRenewed = "one-gone-renewed",
    /// The provider throttles one device for [`THROTTLED`].
    OneThrottled = "one-throttled",
    /// One device is refused for good.
    OneRefused = "one-refused",
    /// The message expires for one device.
    OneExpired = "one-expired",
    /// The transport is unavailable.
    Away = "away",
    /// All devices receive the message, and the answer is lost.
    NoAnswer = "no-answer",
    /// The provider throttles the account for [`HELD`].
    Throttled = "throttled",
    /// The provider refuses the message for every device.
    MessageRefused = "message-refused",
    /// The provider does not accept the account for [`BROKEN`].
    AccountBroken = "account-broken",
    /// The provider fails, and no device receives the message.
    Unavailable = "unavailable",
    /// The provider fails, and all devices receive the message.
    UnavailableTaken = "unavailable-taken",

    /// The index loses its last write.
    ForgetOne = "forget-1",
    /// The index loses its last three writes.
    ForgetThree = "forget-3",
    /// The index loses the whole entry of the message that was written last.
    ForgetEntry = "forget-entry",
    /// The closed entries of pushes to named devices that were accepted once are evicted. A retry with the
    /// idempotency key of an evicted push is sent again, and has an entry of its own.
    Evict = "evict",
    /// A producer recalls a message.
    Recall = "recall",
    /// A device registers.
    Register = "register",
    /// A device is removed.
    Remove = "remove",
    /// A device is removed, and another one registers in its slot.
    Reuse = "reuse",
    /// A newer program writes an envelope into each lane.
    Newer = "newer",
}

/// The kind of call that a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A read of the index.
    Read,
    /// A write of the index.
    Write,
    /// A publish, also a delayed one.
    Publish,
    /// A queue message is acknowledged.
    Ack,
    /// A queue message is given back.
    Requeue,
    /// A batch is handed to a transport.
    Deliver,
}

/// The aspect of a step that a fault changes: two faults of one aspect cannot strike the same step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Its duration.
    Time,
    /// Its answer, or whether the process lives to get it.
    Answer,
    /// Something that happens to its process.
    Process,
    /// Something else in the world.
    World,
}

impl Fault {
    /// The aspect of a step that it changes.
    pub(crate) fn part(self) -> Part {
        match self {
            Self::Slow | Self::Late | Self::LateAnswer => Part::Time,
            Self::CutOff
            | Self::CutOffUnnoticed
            | Self::Freeze
            | Self::Stop
            | Self::ClockAhead
            | Self::ClockBehind => Part::Process,
            Self::ForgetOne
            | Self::ForgetThree
            | Self::ForgetEntry
            | Self::Evict
            | Self::Recall
            | Self::Register
            | Self::Remove
            | Self::Reuse
            | Self::Newer => Part::World,
            _ => Part::Answer,
        }
    }

    /// Returns true if it makes sense at a step of this kind.
    pub(crate) fn strikes(self, kind: Kind) -> bool {
        use Kind::{Ack, Deliver, Publish, Read, Requeue, Write};
        match self {
            Self::LostBefore | Self::Silent | Self::Unreachable => matches!(kind, Read | Write),
            // Listed schedules name them: the one takes too many steps to be placed everywhere, and the
            // other one also delays the answer that a device has expired unsent. A second acceptance
            // that comes meanwhile cannot tell this from a device that may have received the message.
            Self::SilentLong | Self::LateAnswer => false,
            Self::LostAfter
            | Self::GhostSoon
            | Self::GhostLate
            | Self::Overtaken
            | Self::RefuseOnce
            | Self::RefuseLong => kind == Write,
            Self::PublishLost
            | Self::PublishStored
            | Self::PublishArrives
            | Self::Blocked
            | Self::DelayedLonger => kind == Publish,
            Self::AckLost | Self::AckLostEvicted => kind == Ack,
            Self::CrashMidway
            | Self::OneUndecided
            | Self::OneUndecidedLost
            | Self::OneLater
            | Self::OneGone
            | Self::OneGoneBefore
            | Self::OneGoneMoved
            | Self::OneGoneRenewed
            | Self::OneThrottled
            | Self::OneRefused
            | Self::OneExpired
            | Self::Away
            | Self::NoAnswer
            | Self::Throttled
            | Self::MessageRefused
            | Self::AccountBroken
            | Self::Unavailable
            | Self::UnavailableTaken => kind == Deliver,
            // A read has no effect, so dying before it and after it are the same.
            Self::CrashAfter => !matches!(kind, Read | Requeue),
            Self::Late => kind != Requeue,
            _ => true,
        }
    }

    /// Returns true if both can strike one step.
    pub(crate) fn goes_with(self, other: Self) -> bool {
        match (self.part(), other.part()) {
            (Part::Process, Part::Process) | (Part::World, Part::World) => self != other,
            (one, another) => one != another,
        }
    }

    /// Returns true if it strikes alone wherever a driver places faults. Beside another fault, a
    /// run may be handed on before the answer of its transport comes. Its devices are then tried
    /// again or written off, and the oracle does not know which of them the contract excuses.
    pub(crate) fn is_alone(self) -> bool {
        self == Self::LateAnswer
    }

    /// Returns true if a provider gives a definite answer, and nothing else is wrong: nothing that is
    /// known about a device is lost.
    pub(crate) fn is_answer(self) -> bool {
        matches!(
            self,
            Self::OneLater
                | Self::OneGone
                | Self::OneGoneBefore
                | Self::OneGoneMoved
                | Self::OneGoneRenewed
                | Self::OneThrottled
                | Self::OneRefused
                | Self::Away
                | Self::Throttled
                | Self::MessageRefused
                | Self::AccountBroken
                | Self::Unavailable
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|fault| fault.name() == name);
        found.copied().ok_or_else(|| format!("no fault is called {name}"))
    }
}
