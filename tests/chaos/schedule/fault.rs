//! A fault: the part that it strikes, how, and what it may excuse.

use std::{fmt, time::Duration};

use push_tests::{mqtt_proxy::AckMode, servers::Refusal};

use crate::load::audience::Link;

/// Roughly how long RabbitMQ takes to start; the other servers are quick.
const RABBITMQ_START: Duration = Duration::from_secs(7);

/// The part of the system that a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// One of the two `ingest` processes.
    Ingest(usize),
    /// One of the two workers.
    Worker(usize),
    RabbitMq,
    Redis,
    Mosquitto,
    /// The server of a provider.
    Provider(Provider),
}

/// A provider of phones, played by the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// A request for each device, over HTTP/2 in cleartext.
    Fcm,
    /// A request for many devices, over TLS.
    Webhook,
}

/// The fault of that part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// SIGKILL; the part is started again afterwards. A provider resets its connections and closes its
    /// port.
    Kill,
    /// SIGSTOP, and SIGCONT afterwards. A provider accepts connections, and reads and answers nothing.
    Freeze,
    /// SIGKILL; the process is started again with a clock that is ahead by this, until the next
    /// fault of this kind.
    Clock(Duration),
    /// Redis answers reads and refuses writes.
    Refuse(Refusal),
    /// Redis is killed and comes back without the writes of this time before.
    Forget(Duration),
    /// RabbitMQ raises its memory alarm and blocks connections that publish.
    Alarm,
    /// The MQTT broker takes messages and acknowledges them late, or never.
    Answer(AckMode),
    /// A provider takes each message and answers this much later.
    Late(Duration),
    /// A provider takes nothing and answers with 429 or 503, and a time to wait.
    Busy,
    /// A provider says goodbye on each connection after so many requests.
    Goodbye(u32),
    /// A provider cuts each open connection after it has sent so many more bytes.
    Cut(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) part: Part,
    pub(crate) blow: Blow,
    /// Time for which the part is affected.
    pub(crate) away: Duration,
}

impl Provider {
    pub(crate) const ALL: [Self; 2] = [Self::Fcm, Self::Webhook];

    /// The link to devices that it serves.
    fn link(self) -> Link {
        match self {
            Self::Fcm => Link::Fcm,
            Self::Webhook => Link::Webhook,
        }
    }
}

impl Fault {
    /// Roughly how long it takes until the part is back.
    pub(crate) fn length(&self) -> Duration {
        match (self.part, self.blow) {
            (Part::RabbitMq, Blow::Kill) => self.away + RABBITMQ_START,
            (_, Blow::Forget(what)) => what + self.away,
            _ => self.away,
        }
    }

    /// Returns true if this fault may cause a repeat at any device: a process or a connection ended
    /// while outcomes were not recorded yet, or the record was lost. A server that refuses, is slow or
    /// says goodbye costs time only.
    pub(crate) fn justifies_a_repeat(&self) -> bool {
        match self.blow {
            Blow::Kill | Blow::Freeze | Blow::Clock(_) => !matches!(self.part, Part::Ingest(_)),
            Blow::Forget(_) | Blow::Answer(AckMode::Mute) | Blow::Cut(_) => true,
            Blow::Refuse(_)
            | Blow::Alarm
            | Blow::Answer(AckMode::Slow(_) | AckMode::Prompt)
            | Blow::Late(_)
            | Blow::Busy
            | Blow::Goodbye(_) => false,
        }
    }

    /// Returns true if it may cause a repeat at devices with this link.
    pub(crate) fn justifies_a_repeat_over(&self, link: Link) -> bool {
        let concerns = match self.part {
            Part::Mosquitto => link == Link::Mqtt,
            Part::Provider(provider) => link == provider.link(),
            Part::Ingest(_) | Part::Worker(_) | Part::RabbitMq | Part::Redis => true,
        };
        concerns && self.justifies_a_repeat()
    }

    /// Returns true if the MQTT broker loses its sessions.
    pub(crate) fn ends_sessions(&self) -> bool {
        (self.part, self.blow) == (Part::Mosquitto, Blow::Kill)
    }

    /// Returns true if the index loses its last writes.
    pub(crate) fn loses_writes(&self) -> bool {
        matches!(self.blow, Blow::Forget(_))
    }

    /// The kind, for the table of figures.
    pub(crate) fn kind(&self) -> String {
        let blow = match self.blow {
            Blow::Kill => "kill",
            Blow::Freeze => "freeze",
            Blow::Clock(_) => "wrong clock",
            Blow::Refuse(_) => "refusing",
            Blow::Forget(_) => "forgetful",
            Blow::Alarm => "alarmed",
            Blow::Answer(AckMode::Mute) => "mute",
            Blow::Answer(AckMode::Slow(_) | AckMode::Prompt) | Blow::Late(_) => "slow",
            Blow::Busy => "busy",
            Blow::Goodbye(_) => "leaving",
            Blow::Cut(_) => "cut",
        };
        let part = match self.part {
            Part::Ingest(_) => "ingest",
            Part::Worker(_) => "worker",
            Part::RabbitMq => "rabbitmq",
            Part::Redis => "redis",
            Part::Mosquitto => "mosquitto",
            Part::Provider(_) => "provider",
        };
        format!("{blow} {part}")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match self.part {
            Part::Ingest(n) | Part::Worker(n) => format!(" {n}"),
            Part::Provider(provider) => format!(" {provider:?}"),
            Part::RabbitMq | Part::Redis | Part::Mosquitto => String::new(),
        };
        write!(f, "{}{which}", self.kind())?;
        match self.blow {
            Blow::Clock(ahead) => write!(f, " ({ahead:?} ahead)")?,
            Blow::Refuse(why) => write!(f, " ({why:?})")?,
            Blow::Forget(what) => write!(f, " (the last {what:?})")?,
            Blow::Answer(AckMode::Slow(late)) | Blow::Late(late) => write!(f, " ({late:?} late)")?,
            Blow::Goodbye(requests) => write!(f, " (after {requests} requests)")?,
            Blow::Cut(bytes) => write!(f, " (after {bytes} bytes)")?,
            _ => {}
        }
        write!(f, " for {:?}", self.away)
    }
}
