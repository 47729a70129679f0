//! The RabbitMQ engine, for 3.10 to 4.x without plugins.
//!
//! It relies on quorum queues, publisher confirms with the mandatory flag, manual acks with
//! prefetch, and at-least-once dead-lettering between the queues.
//!
//! Every connection is expected to break. The publisher and each consumer own theirs and open
//! another one, with everything that belongs to it, whenever it breaks. The client library's own
//! recovery stays off.
//!
//! - [`topology`]: the queues, exchanges and bindings, and their declaration
//! - [`connection`]: opening connections, and the operator's requests
//! - [`publisher`]: publishing with confirms
//! - [`consumer`]: consuming with prefetch, and settling
//! - [`policies`]: policies of the server that make it drop messages
//! - [`dead_letters`]: listing, replaying and dropping dead letters
//! - [`settings`], [`error`]: timeouts and limits; what can go wrong

mod connection;
mod consumer;
mod dead_letters;
mod error;
mod policies;
mod publisher;
mod settings;
mod topology;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use lapin::types::FieldTable;
use push_model::time::UnixMillis;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{connection::check_url, settings::AmqpSettings};
use self::{
    connection::{ControlConnection, Dialer},
    consumer::AmqpConsumer,
    dead_letters::Action,
    policies::Policies,
    publisher::{AlarmProbe, Publisher},
    topology::Names,
};
use super::{
    ConnectionCounts, Consumer, DeadLetter, Lane, LaneCounts, Queue, QueueCounts, QueueError,
    counts::HeadAge,
};

/// Every queue that [`AmqpQueue::connect`] declares under a namespace, for programs that inspect
/// the server itself.
///
/// # Errors
/// If the namespace has another form.
pub fn queue_names(namespace: &str) -> Result<Vec<String>, String> {
    let names = Names::new(push_model::namespace::namespace(namespace)?);
    Ok(names.topology().queues.into_iter().map(|queue| queue.name).collect())
}

/// A queue on a RabbitMQ server or cluster.
#[derive(Debug)]
pub struct AmqpQueue {
    dialer: Dialer,
    publisher: Publisher,
    control: ControlConnection,
    alarm_probe: AlarmProbe,
    policies: Policies,
    /// Why nothing should be published: an alarm or a policy.
    blocked: watch::Receiver<Option<Arc<str>>>,
    ages: Ages,
    /// The state of each consumer's session: true if it has one. Closed when its consumer has
    /// ended.
    sessions: Mutex<Vec<watch::Receiver<bool>>>,
    /// The lanes that are consumed, or are to be once a connection can be opened.
    consumed: Mutex<BTreeSet<&'static str>>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// The greatest age of the first message of each lane.
#[derive(Debug)]
struct Ages {
    jobs: Arc<HeadAge>,
    tasks: Arc<HeadAge>,
    isolated: Arc<HeadAge>,
}

impl Ages {
    fn new(now: UnixMillis) -> Self {
        let age = || Arc::new(HeadAge::new(now));
        Self { jobs: age(), tasks: age(), isolated: age() }
    }

    fn of(&self, lane: Lane) -> &Arc<HeadAge> {
        match lane {
            Lane::Jobs => &self.jobs,
            Lane::Tasks => &self.tasks,
            Lane::Isolated => &self.isolated,
        }
    }
}

impl AmqpQueue {
    /// Connects, and declares all queues under the namespace.
    ///
    /// # Errors
    /// [`QueueError::Topology`] if there are queues of these names with other properties,
    /// [`QueueError::Unavailable`] if the server cannot be reached or refuses the user.
    pub async fn connect(
        url: &str,
        namespace: &str,
        settings: AmqpSettings,
    ) -> Result<Self, QueueError> {
        let dialer = Dialer::new(url, namespace, settings)?;
        let (tasks, closing) = (TaskTracker::new(), CancellationToken::new());
        let (publisher, task) = Publisher::start(dialer.clone(), closing.clone()).await?;
        tasks.spawn(task);
        let control = ControlConnection::new(dialer.clone());
        let alarm_probe = AlarmProbe::new(dialer.clone());
        let (policies, task) = Policies::start(dialer.clone(), closing.clone());
        tasks.spawn(task);
        let (announce, blocked) = watch::channel(None);
        let (alarm, policy) = (publisher.blocked(), policies.found());
        tasks.spawn(join_reasons([alarm, policy], announce, closing.clone()));
        let ages = Ages::new(UnixMillis::now());
        let (sessions, consumed) = (Mutex::default(), Mutex::default());
        Ok(Self {
            dialer,
            publisher,
            control,
            alarm_probe,
            policies,
            blocked,
            ages,
            sessions,
            consumed,
            tasks,
            closing,
        })
    }

    /// The consumers that have not ended, each with whether it has a session.
    fn sessions(&self) -> MutexGuard<'_, Vec<watch::Receiver<bool>>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| !session.is_closed());
        sessions
    }

    fn consumed(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.consumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> &Names {
        &self.dialer.names
    }
}

/// Announces the first of these reasons that there is, until `closing`.
async fn join_reasons(
    mut reasons: [watch::Receiver<Option<Arc<str>>>; 2],
    announce: watch::Sender<Option<Arc<str>>>,
    closing: CancellationToken,
) {
    loop {
        let first =
            reasons.iter_mut().filter_map(|reason| reason.borrow_and_update().clone()).next();
        announce.send_if_modified(|known| {
            let is_new = *known != first;
            *known = first;
            is_new
        });
        let [alarm, policy] = &mut reasons;
        let changed = tokio::select! {
            () = closing.cancelled() => return,
            changed = alarm.changed() => changed,
            changed = policy.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

#[async_trait]
impl Queue for AmqpQueue {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        self.publisher
            .publish(self.names().lane_address(lane), payload, FieldTable::default())
            .await
    }

    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let to = self.names().delayed_address(lane, delay);
        self.publisher.publish(to, payload, FieldTable::default()).await
    }

    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        if self.closing.is_cancelled() {
            return Err(QueueError::Closed);
        }
        self.consumed().insert(lane.name());
        let age = Arc::clone(self.ages.of(lane));
        let (consumer, task) =
            AmqpConsumer::start(self.dialer.clone(), lane, prefetch, age, &self.closing).await?;
        self.tasks.spawn(task);
        self.sessions().push(consumer.connected());
        Ok(Box::new(consumer))
    }

    fn connections(&self) -> Option<ConnectionCounts> {
        let sessions = self.sessions();
        let count = |connections: usize| u64::try_from(connections).unwrap_or(u64::MAX);
        let open = sessions.iter().filter(|session| *session.borrow()).count();
        let wanted = sessions.len().max(self.consumed().len());
        Some(ConnectionCounts {
            open: u64::from(self.publisher.is_connected()) + count(open),
            wanted: 1 + count(wanted),
        })
    }

    async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        let channel = self.control.channel().await?;
        let ready = self.control.ready_count(&channel, &self.names().lane(lane)).await?;
        self.control.close_channel(&channel).await?;
        Ok(ready)
    }

    async fn counts(&self) -> Result<QueueCounts, QueueError> {
        let (names, channel) = (self.names(), self.control.channel().await?);
        let mut all = QueueCounts::default();
        for lane in Lane::QUEUES {
            let of = self.control.counts(&channel, &names.lane(lane)).await?;
            *all.lane_mut(lane) = LaneCounts {
                ready: of.messages,
                consumers: of.consumers,
                oldest: self.ages.of(lane).bound(of.messages, UnixMillis::now()),
            };
        }
        for queue in names.delay_queues() {
            all.delayed += self.control.counts(&channel, &queue).await?.messages;
        }
        all.dead = self.control.counts(&channel, &names.dead_letters()).await?.messages;
        self.control.close_channel(&channel).await?;
        Ok(all)
    }

    async fn publish_dead(
        &self,
        lane: Lane,
        payload: Bytes,
        reason: &str,
    ) -> Result<(), QueueError> {
        let headers = dead_letters::headers(lane, reason, UnixMillis::now());
        self.publisher.publish(self.names().dead_letter_address(), payload, headers).await
    }

    async fn visit_dead(
        &self,
        visit: &mut (dyn FnMut(DeadLetter) -> bool + Send),
    ) -> Result<(), QueueError> {
        dead_letters::visit(&self.control, visit).await
    }

    async fn replay_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        dead_letters::act(&self.control, only, Action::Replay(&self.publisher)).await
    }

    async fn drop_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        dead_letters::act(&self.control, only, Action::Drop).await
    }

    fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.blocked.clone()
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.publisher.check_usable()?;
        self.alarm_probe.takes_messages().await?;
        // The server is back before the publisher's next try may be.
        self.publisher.check_connected()?;
        match self.policies.found_by_any(&self.control).await? {
            Some(reason) => Err(QueueError::Blocked(reason)),
            None => Ok(()),
        }
    }

    async fn describe(&self) -> Result<String, QueueError> {
        Ok(self.dialer.describe().await?)
    }

    /// Waits for the confirms of publishes in flight, for as long as one may take, but not while
    /// the server takes no messages. Deliveries that are not settled are delivered again.
    async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.control.close().await;
        self.alarm_probe.close().await;
        self.tasks.wait().await;
    }
}
