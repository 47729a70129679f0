//! Request coalescing: calls of one kind that are made while others are in flight go to the store
//! together, by [group commit](push_group_commit). So a lone call takes no longer than without
//! coalescing.
//!
//! The queue is bounded by the number of callers, because each of them waits for its answer. A call
//! whose caller has gone before its group started is never made: it could undo a later request of
//! the same client, and a slow store would spend its time on answers that no caller waits for.

use std::fmt;

use futures::future::BoxFuture;
use push_group_commit::{GroupCommit, Limits, Refused, Size, Work};
use tokio::sync::oneshot;

/// The bounds of a [`Coalescer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoalescerLimits {
    /// The most calls of one group.
    pub group_calls: usize,
    /// The most groups in flight.
    pub groups: usize,
}

/// Coalesces calls of one kind.
pub struct Coalescer<C: Send + 'static, A: Send + 'static> {
    calls: GroupCommit<Calls<C, A>>,
}

/// Makes the calls of a group and gives one answer for each, in the same order.
type RunGroup<C, A> = dyn Fn(Vec<C>) -> BoxFuture<'static, Vec<A>> + Send + Sync;

struct Calls<C, A> {
    run_group: Box<RunGroup<C, A>>,
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
        let CoalescerLimits { group_calls, groups } = limits;
        let group = Size { items: group_calls, bytes: usize::MAX };
        let run_group = Box::new(move |calls| Box::pin(run_group(calls)) as BoxFuture<'static, _>);
        Self { calls: GroupCommit::new(Limits { group, groups }, Calls { run_group }) }
    }

    /// Makes a call and waits for its answer. If this future is dropped, the call is still made if
    /// its group has started, and not made otherwise.
    ///
    /// # Errors
    /// If its group ended without an answer; the call may have been made nevertheless.
    pub async fn call(&self, call: C) -> Result<A, GroupAborted> {
        self.enqueue(call).await.map_err(|_| GroupAborted)
    }

    fn enqueue(&self, call: C) -> oneshot::Receiver<A> {
        let (answer, answered) = oneshot::channel();
        self.calls.enqueue([(call, answer)], usize::MAX);
        answered
    }
}

impl<C: Send + 'static, A: Send + 'static> Work for Calls<C, A> {
    type Entry = (C, oneshot::Sender<A>);

    fn size(_: &Self::Entry) -> Size {
        Size { items: 1, bytes: 0 }
    }

    fn is_abandoned((_, answer): &Self::Entry) -> bool {
        answer.is_closed()
    }

    /// Is not called: the queue of calls has no bound and is never closed.
    fn refuse(_: Self::Entry, _: Refused) {}

    async fn commit(&self, group: Vec<Self::Entry>) {
        let (calls, answers): (Vec<C>, Vec<_>) = group.into_iter().unzip();
        for (answer, told) in (self.run_group)(calls).await.into_iter().zip(answers) {
            // Sending fails if the caller has gone; its call was made nevertheless.
            let _ = told.send(answer);
        }
    }
}

impl<C: Send + 'static, A: Send + 'static> fmt::Debug for Coalescer<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").field("calls", &self.calls).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
}
