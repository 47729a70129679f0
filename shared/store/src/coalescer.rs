//! Request coalescing: calls of one kind that are made while others are in flight go to the store
//! together, as one *group*.
//!
//! Most of what one call costs a store is the call itself: a network round trip, a wake-up of its
//! thread, entering a script. No call is delayed to fill a group: the first call goes immediately, and
//! the calls that wait while it is in flight go as soon as they are as many as all calls in flight.
//! So a lone call takes no longer than without coalescing, and under load two groups alternate,
//! each with about half of the calls.
//!
//! The queue is bounded by the number of callers, because each of them waits for its answer. A call
//! whose caller has gone before its group started is never made: it could undo a later request of
//! the same client, and a slow store would spend its time on answers that no caller waits for.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use tokio::{runtime::Handle, sync::oneshot};

/// The bounds of a [`Coalescer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoalescerLimits {
    /// The most calls of one group.
    pub group_calls: usize,
    /// The most groups in flight.
    pub groups: usize,
}

/// Makes the calls of a group and gives one answer for each, in the same order.
type RunGroup<C, A> = dyn Fn(Vec<C>) -> BoxFuture<'static, Vec<A>> + Send + Sync;

/// Coalesces calls of one kind.
pub struct Coalescer<C, A> {
    shared: Arc<Shared<C, A>>,
}

struct Shared<C, A> {
    limits: CoalescerLimits,
    run_group: Box<RunGroup<C, A>>,
    queue: Mutex<CallQueue<C, A>>,
}

/// A queue shorter than this is not swept for calls whose callers have gone.
const MIN_SWEEP_LEN: usize = 64;

struct CallQueue<C, A> {
    waiting: VecDeque<(C, oneshot::Sender<A>)>,
    /// At this length the queue is swept: calls whose callers have gone are removed. The next sweep
    /// is at twice the length that is left, so that sweeping costs little for each call.
    sweep_len: usize,
    /// Calls in flight.
    calls: usize,
    /// Groups in flight, including one that is about to take its calls.
    groups: usize,
    /// A group was started and has not taken its calls yet.
    starting: bool,
}

/// The group of a call ended without an answer: the runtime stops, or the group panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the group of calls ended before its answers")]
pub struct GroupAborted;

impl<C: Send + 'static, A: Send + 'static> Coalescer<C, A> {
    /// Coalesces calls that `run_group` makes. It must give one answer for each call, in order.
    pub fn new<F>(
        limits: CoalescerLimits,
        run_group: impl Fn(Vec<C>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let queue = CallQueue {
            waiting: VecDeque::new(),
            sweep_len: MIN_SWEEP_LEN,
            calls: 0,
            groups: 0,
            starting: false,
        };
        let run_group = Box::new(move |calls| Box::pin(run_group(calls)) as BoxFuture<'static, _>);
        Self { shared: Arc::new(Shared { limits, run_group, queue: Mutex::new(queue) }) }
    }

    /// Makes a call and waits for its answer. If this future is dropped, the call is still made if
    /// its group has started, and not made otherwise.
    ///
    /// # Errors
    /// If its group ended without an answer; the call may have been made all the same.
    pub async fn call(&self, call: C) -> Result<A, GroupAborted> {
        self.enqueue(call).await.map_err(|_| GroupAborted)
    }

    fn enqueue(&self, call: C) -> oneshot::Receiver<A> {
        let (answer, answered) = oneshot::channel();
        let mut queue = self.shared.queue();
        if queue.waiting.len() >= queue.sweep_len {
            queue.waiting.retain(|(_, answer)| !answer.is_closed());
            queue.sweep_len = (2 * queue.waiting.len()).max(MIN_SWEEP_LEN);
        }
        queue.waiting.push_back((call, answer));
        Shared::start_group(&self.shared, queue);
        answered
    }
}

impl<C: Send + 'static, A: Send + 'static> Shared<C, A> {
    fn queue(&self) -> MutexGuard<'_, CallQueue<C, A>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a group if enough calls wait. The group takes them when its task first runs, so that
    /// calls that one task makes one after the other go together.
    fn start_group(this: &Arc<Self>, mut queue: MutexGuard<'_, CallQueue<C, A>>) {
        let CoalescerLimits { group_calls, groups } = this.limits;
        let wanted = queue.calls.clamp(1, group_calls.max(1));
        if queue.starting || queue.groups >= groups.max(1) || queue.waiting.len() < wanted {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            // The runtime stops, and with it the callers: the calls need not be made.
            queue.waiting.clear();
            return;
        };
        queue.starting = true;
        queue.groups += 1;
        drop(queue);
        let this = Arc::clone(this);
        runtime.spawn(async move {
            let mut group = GroupInFlight { shared: &this, calls: 0 };
            let (calls, answers) = group.take();
            if calls.is_empty() {
                return;
            }
            for (answer, told) in (this.run_group)(calls).await.into_iter().zip(answers) {
                // Sending fails if the caller has gone; its call was made all the same.
                let _ = told.send(answer);
            }
        });
    }
}

/// A group in flight. Dropping it starts the next one, even if the group panicked.
struct GroupInFlight<'a, C: Send + 'static, A: Send + 'static> {
    shared: &'a Arc<Shared<C, A>>,
    calls: usize,
}

impl<C: Send + 'static, A: Send + 'static> GroupInFlight<'_, C, A> {
    fn take(&mut self) -> (Vec<C>, Vec<oneshot::Sender<A>>) {
        let mut queue = self.shared.queue();
        let most = self.shared.limits.group_calls.max(1);
        let (mut calls, mut answers) = (Vec::new(), Vec::new());
        while calls.len() < most
            && let Some((call, answer)) = queue.waiting.pop_front()
        {
            if !answer.is_closed() {
                calls.push(call);
                answers.push(answer);
            }
        }
        queue.starting = false;
        queue.calls += calls.len();
        self.calls = calls.len();
        Shared::start_group(self.shared, queue);
        (calls, answers)
    }
}

impl<C: Send + 'static, A: Send + 'static> Drop for GroupInFlight<'_, C, A> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.groups -= 1;
        queue.calls -= self.calls;
        Shared::start_group(self.shared, queue);
    }
}

impl<C, A> fmt::Debug for Coalescer<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    const LIMITS: CoalescerLimits = CoalescerLimits { group_calls: 10, groups: 2 };

    /// Answers a call with itself and the size of its group.
    type Echo = Coalescer<u32, (u32, usize)>;

    /// A coalescer whose groups wait for a permit of the semaphore before they answer.
    fn coalescer(limits: CoalescerLimits) -> (Arc<Echo>, Arc<Semaphore>) {
        let go = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&go);
        let run_group = move |calls: Vec<u32>| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                assert!(!calls.contains(&666), "a group that fails");
                calls.iter().map(|call| (*call, calls.len())).collect()
            }
        };
        (Arc::new(Coalescer::new(limits, run_group)), go)
    }

    #[tokio::test]
    async fn a_lone_call_goes_at_once_and_calls_made_together_go_together() {
        let (coalescer, go) = coalescer(LIMITS);
        go.add_permits(100);
        assert_eq!(coalescer.call(7).await, Ok((7, 1)));
        let five = join_all((0..5).map(|call| coalescer.call(call))).await;
        assert_eq!(five, (0..5).map(|call| Ok((call, 5))).collect::<Vec<_>>());
        let sizes: Vec<usize> = join_all((0..25).map(|call| coalescer.call(call)))
            .await
            .into_iter()
            .map(|answer| answer.unwrap().1)
            .collect();
        assert_eq!(sizes, [vec![10; 20], vec![5; 5]].concat());
    }

    #[tokio::test]
    async fn the_next_group_waits_until_it_is_as_large_as_what_is_in_flight() {
        let (coalescer, go) = coalescer(LIMITS);
        let call = |number: u32| {
            let coalescer = Arc::clone(&coalescer);
            tokio::spawn(async move { coalescer.call(number).await })
        };
        let first = [call(0), call(1)];
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let third = call(2);
        tokio::task::yield_now().await;
        let fourth = call(3);
        go.add_permits(2);
        for made in first {
            assert_eq!(made.await.unwrap().unwrap().1, 2);
        }
        assert_eq!(third.await.unwrap(), Ok((2, 2)));
        assert_eq!(fourth.await.unwrap(), Ok((3, 2)));
    }

    #[tokio::test]
    async fn a_group_that_fails_fails_no_other() {
        let (coalescer, go) = coalescer(CoalescerLimits { group_calls: 2, groups: 1 });
        go.add_permits(100);
        let answers = join_all([666, 1, 2, 3].map(|call| coalescer.call(call))).await;
        assert_eq!(answers, [Err(GroupAborted), Err(GroupAborted), Ok((2, 2)), Ok((3, 2))]);
        assert_eq!(coalescer.call(4).await, Ok((4, 1)));
    }

    #[tokio::test]
    async fn a_call_whose_caller_has_gone_is_made_only_if_its_group_had_started() {
        let (coalescer, go) = coalescer(CoalescerLimits { group_calls: 10, groups: 1 });
        let begun = tokio::spawn({
            let coalescer = Arc::clone(&coalescer);
            async move { coalescer.call(0).await }
        });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        {
            let gone = coalescer.call(1);
            futures::pin_mut!(gone);
            assert!(futures::poll!(gone).is_pending());
        }
        let stays = coalescer.enqueue(2);
        go.add_permits(2);
        assert_eq!(begun.await.unwrap(), Ok((0, 1)));
        assert_eq!(stays.await.unwrap(), (2, 1));
    }

    #[tokio::test]
    async fn callers_that_have_gone_leave_no_calls_in_the_queue() {
        let (coalescer, _go) = coalescer(CoalescerLimits { group_calls: 10, groups: 1 });
        let _begun = coalescer.enqueue(0);
        tokio::task::yield_now().await;
        for number in 1..10_000 {
            drop(coalescer.enqueue(number));
        }
        assert!(coalescer.shared.queue().waiting.len() <= MIN_SWEEP_LEN);
    }
}
