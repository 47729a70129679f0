//! Group commit: calls that come while others are under way go together.
//!
//! What one call costs a store is mostly the call: the step of a network, a turn of its thread, a
//! script that is entered. Work of the same kind that comes together therefore goes in one request.
//! No call is delayed to fill a group: the first one goes at once, and what comes while it
//! is under way goes as soon as it is as much as all that is under way. So a call that comes alone
//! takes as long as it did, and under load two groups take turns, each with about half of the calls.
//!
//! What waits here is bounded by the callers, each of whom waits for its answer: a call whose caller
//! has gone before its group began is never made. It could undo a later request of the same client,
//! and a slow store would spend its time on answers that no caller waits for.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use tokio::{runtime::Handle, sync::oneshot};

/// How calls are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupLimits {
    /// The most calls of one group.
    pub(crate) calls: usize,
    /// The most groups that are under way at once.
    pub(crate) groups: usize,
}

/// Carries a group out: as many answers as calls, in the same order.
type CarryOut<C, A> = dyn Fn(Vec<C>) -> BoxFuture<'static, Vec<A>> + Send + Sync;

/// Groups calls of one kind.
pub(crate) struct Grouped<C, A> {
    shared: Arc<Shared<C, A>>,
}

struct Shared<C, A> {
    limits: GroupLimits,
    carry_out: Box<CarryOut<C, A>>,
    line: Mutex<Line<C, A>>,
}

/// A line that is no longer is not looked through for calls whose callers have gone.
const SHORT: usize = 64;

struct Line<C, A> {
    waiting: VecDeque<(C, oneshot::Sender<A>)>,
    /// When it is as long as that, calls whose callers have gone leave it. Twice what stays then, so
    /// that this costs little.
    longest: usize,
    /// Calls under way.
    calls: usize,
    /// Groups under way, with one that is about to take its calls.
    groups: usize,
    /// A group is about to take its calls.
    begins: bool,
}

/// The group was not carried out to its end: the runtime stops, or it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the group of calls ended before its answers")]
pub(crate) struct Ended;

impl<C: Send + 'static, A: Send + 'static> Grouped<C, A> {
    /// Groups calls that `carry_out` carries out. It must give one answer for each call, in order.
    pub(crate) fn new<F>(
        limits: GroupLimits,
        carry_out: impl Fn(Vec<C>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        let line =
            Line { waiting: VecDeque::new(), longest: SHORT, calls: 0, groups: 0, begins: false };
        let carry_out = Box::new(move |calls| Box::pin(carry_out(calls)) as BoxFuture<'static, _>);
        Self { shared: Arc::new(Shared { limits, carry_out, line: Mutex::new(line) }) }
    }

    /// Makes a call, and waits for its answer. If this future is dropped, a call whose group has
    /// begun is carried out all the same, and another is not.
    ///
    /// # Errors
    /// If its group ended without an answer; it may have been carried out all the same.
    pub(crate) async fn call(&self, call: C) -> Result<A, Ended> {
        self.make(call).await.map_err(|_| Ended)
    }

    fn make(&self, call: C) -> oneshot::Receiver<A> {
        let (answer, answered) = oneshot::channel();
        let mut line = self.shared.line();
        if line.waiting.len() >= line.longest {
            line.waiting.retain(|(_, answer)| !answer.is_closed());
            line.longest = (2 * line.waiting.len()).max(SHORT);
        }
        line.waiting.push_back((call, answer));
        Shared::begin(&self.shared, line);
        answered
    }
}

impl<C: Send + 'static, A: Send + 'static> Shared<C, A> {
    fn line(&self) -> MutexGuard<'_, Line<C, A>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a group if enough calls wait. It takes them when its task runs, so that calls that
    /// one task makes one after the other go together.
    fn begin(this: &Arc<Self>, mut line: MutexGuard<'_, Line<C, A>>) {
        let GroupLimits { calls, groups } = this.limits;
        let wanted = line.calls.clamp(1, calls.max(1));
        if line.begins || line.groups >= groups.max(1) || line.waiting.len() < wanted {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            // The runtime stops, and with it the callers.
            line.waiting.clear();
            return;
        };
        line.begins = true;
        line.groups += 1;
        drop(line);
        let this = Arc::clone(this);
        runtime.spawn(async move {
            let mut group = UnderWay { shared: &this, calls: 0 };
            let (calls, answers) = group.take();
            if calls.is_empty() {
                return;
            }
            for (answer, told) in (this.carry_out)(calls).await.into_iter().zip(answers) {
                // The caller may be gone. What it asked for was done all the same.
                let _ = told.send(answer);
            }
        });
    }
}

/// A group under way. Its end lets the next one begin, also if it fails.
struct UnderWay<'a, C: Send + 'static, A: Send + 'static> {
    shared: &'a Arc<Shared<C, A>>,
    calls: usize,
}

impl<C: Send + 'static, A: Send + 'static> UnderWay<'_, C, A> {
    fn take(&mut self) -> (Vec<C>, Vec<oneshot::Sender<A>>) {
        let mut line = self.shared.line();
        let most = self.shared.limits.calls.max(1);
        let (mut calls, mut answers) = (Vec::new(), Vec::new());
        while calls.len() < most
            && let Some((call, answer)) = line.waiting.pop_front()
        {
            if !answer.is_closed() {
                calls.push(call);
                answers.push(answer);
            }
        }
        line.begins = false;
        line.calls += calls.len();
        self.calls = calls.len();
        Shared::begin(self.shared, line);
        (calls, answers)
    }
}

impl<C: Send + 'static, A: Send + 'static> Drop for UnderWay<'_, C, A> {
    fn drop(&mut self) {
        let mut line = self.shared.line();
        line.groups -= 1;
        line.calls -= self.calls;
        Shared::begin(self.shared, line);
    }
}

impl<C, A> fmt::Debug for Grouped<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grouped").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    const LIMITS: GroupLimits = GroupLimits { calls: 10, groups: 2 };

    /// Answers a call with itself and the size of its group.
    type Sized = Grouped<u32, (u32, usize)>;

    /// Groups that are answered when they are let go.
    fn grouped(limits: GroupLimits) -> (Arc<Sized>, Arc<Semaphore>) {
        let go = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&go);
        let carry_out = move |calls: Vec<u32>| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                assert!(!calls.contains(&666), "a group that fails");
                calls.iter().map(|call| (*call, calls.len())).collect()
            }
        };
        (Arc::new(Grouped::new(limits, carry_out)), go)
    }

    #[tokio::test]
    async fn what_comes_alone_goes_at_once_and_what_comes_together_goes_together() {
        let (grouped, go) = grouped(LIMITS);
        go.add_permits(100);
        assert_eq!(grouped.call(7).await, Ok((7, 1)));
        let five = join_all((0..5).map(|call| grouped.call(call))).await;
        assert_eq!(five, (0..5).map(|call| Ok((call, 5))).collect::<Vec<_>>());
        let sizes: Vec<usize> = join_all((0..25).map(|call| grouped.call(call)))
            .await
            .into_iter()
            .map(|answer| answer.unwrap().1)
            .collect();
        assert_eq!(sizes, [vec![10; 20], vec![5; 5]].concat());
    }

    #[tokio::test]
    async fn the_next_group_waits_until_it_is_as_large_as_what_is_under_way() {
        let (grouped, go) = grouped(LIMITS);
        let call = |number: u32| {
            let grouped = Arc::clone(&grouped);
            tokio::spawn(async move { grouped.call(number).await })
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
    async fn a_group_that_fails_takes_no_other_with_it() {
        let (grouped, go) = grouped(GroupLimits { calls: 2, groups: 1 });
        go.add_permits(100);
        let answers = join_all([666, 1, 2, 3].map(|call| grouped.call(call))).await;
        assert_eq!(answers, [Err(Ended), Err(Ended), Ok((2, 2)), Ok((3, 2))]);
        assert_eq!(grouped.call(4).await, Ok((4, 1)));
    }

    #[tokio::test]
    async fn a_call_whose_caller_has_gone_is_carried_out_only_if_its_group_had_begun() {
        let (grouped, go) = grouped(GroupLimits { calls: 10, groups: 1 });
        let begun = tokio::spawn({
            let grouped = Arc::clone(&grouped);
            async move { grouped.call(0).await }
        });
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        {
            let gone = grouped.call(1);
            futures::pin_mut!(gone);
            assert!(futures::poll!(gone).is_pending());
        }
        let stays = grouped.make(2);
        go.add_permits(2);
        assert_eq!(begun.await.unwrap(), Ok((0, 1)));
        assert_eq!(stays.await.unwrap(), (2, 1));
    }

    #[tokio::test]
    async fn callers_that_have_gone_leave_no_line_behind() {
        let (grouped, _go) = grouped(GroupLimits { calls: 10, groups: 1 });
        let _begun = grouped.make(0);
        tokio::task::yield_now().await;
        for number in 1..10_000 {
            drop(grouped.make(number));
        }
        assert!(grouped.shared.line().waiting.len() <= SHORT);
    }
}
