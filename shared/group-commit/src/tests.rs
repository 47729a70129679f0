use std::sync::{Arc, Mutex};

use tokio::{
    sync::{Semaphore, oneshot},
    task::yield_now,
};

use super::*;
use crate::group_queue::MIN_SWEEP_LEN;

const LIMITS: Limits = Limits { group: Size { items: 4, bytes: 100 }, groups: 4 };

/// An entry that is answered with the size of its group.
struct Letter {
    size: Size,
    is_urgent: bool,
    answer: oneshot::Sender<Result<usize, Refused>>,
}

/// Commits a group for each permit of the semaphore. A group with an entry of no bytes fails.
struct Post {
    permits: Arc<Semaphore>,
    groups: Arc<Mutex<Vec<usize>>>,
}

impl Work for Post {
    type Entry = Letter;

    fn size(letter: &Letter) -> Size {
        letter.size
    }

    fn goes_at_once(letter: &Letter) -> bool {
        letter.is_urgent
    }

    fn is_abandoned(letter: &Letter) -> bool {
        letter.answer.is_closed()
    }

    fn refuse(letter: Letter, why: Refused) {
        let _ = letter.answer.send(Err(why));
    }

    async fn commit(&self, group: Vec<Letter>) {
        let items = group.iter().map(|letter| letter.size.items).sum();
        self.groups.lock().unwrap().push(items);
        self.permits.acquire().await.unwrap().forget();
        assert!(group.iter().all(|letter| letter.size.bytes > 0), "a group that fails");
        for letter in group {
            let _ = letter.answer.send(Ok(items));
        }
    }
}

/// A group commit whose groups end when the test says so.
struct Office {
    commits: GroupCommit<Post>,
    permits: Arc<Semaphore>,
    groups: Arc<Mutex<Vec<usize>>>,
}

type Answer = oneshot::Receiver<Result<usize, Refused>>;

impl Office {
    fn new(limits: Limits) -> Self {
        let (permits, groups) = (Arc::new(Semaphore::new(0)), Arc::default());
        let post = Post { permits: Arc::clone(&permits), groups: Arc::clone(&groups) };
        Self { commits: GroupCommit::new(limits, post), permits, groups }
    }

    fn post(&self, items: usize, bytes: usize) -> Answer {
        self.post_all(&[(items, bytes)], 100).remove(0)
    }

    /// Enqueues entries of these sizes together. All but the first are urgent.
    fn post_all(&self, sizes: &[(usize, usize)], most_waiting: usize) -> Vec<Answer> {
        let letter = |(number, &(items, bytes))| {
            let (answer, answered) = oneshot::channel();
            let size = Size { items, bytes };
            (Letter { size, is_urgent: number > 0, answer }, answered)
        };
        let (letters, answers): (Vec<_>, _) = sizes.iter().enumerate().map(letter).unzip();
        self.commits.enqueue(letters, most_waiting);
        answers
    }

    /// Returns the items of each group that was started, once every task waits.
    async fn groups(&self) -> Vec<usize> {
        for _ in 0..100 {
            yield_now().await;
        }
        self.groups.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_lone_entry_goes_at_once_and_entries_made_together_go_together() {
    let office = Office::new(LIMITS);
    let lone = office.post(1, 1);
    assert_eq!(office.groups().await, [1]);
    office.permits.add_permits(100);
    assert_eq!(lone.await.unwrap(), Ok(1));
    let together = [office.post(1, 1), office.post(1, 1), office.post(1, 1)];
    for answer in together {
        assert_eq!(answer.await.unwrap(), Ok(3));
    }
}

#[tokio::test]
async fn the_next_group_waits_until_it_is_as_large_as_all_that_is_in_flight() {
    let office = Office::new(LIMITS);
    let mut answers = Vec::new();
    let steps: [&[usize]; 6] = [&[1], &[1, 1], &[1, 1], &[1, 1, 2], &[1, 1, 2], &[1, 1, 2]];
    for groups in steps {
        answers.push(office.post(1, 1));
        assert_eq!(office.groups().await, groups);
    }
    office.permits.add_permits(2);
    assert_eq!(office.groups().await, [1, 1, 2, 2], "two wait, and two are in flight");
    answers.push(office.post(1, 1));
    assert_eq!(office.groups().await, [1, 1, 2, 2], "four are in flight now");
    office.permits.add_permits(10);
    for answer in answers {
        assert!(answer.await.unwrap().is_ok());
    }
    assert_eq!(office.groups().await, [1, 1, 2, 2, 1]);
}

#[tokio::test]
async fn no_more_groups_are_in_flight_than_allowed() {
    let office = Office::new(Limits { groups: 1, ..LIMITS });
    let answers: Vec<_> = (0..11).map(|_| office.post(1, 1)).collect();
    assert_eq!(office.groups().await, [4]);
    office.permits.add_permits(1);
    assert_eq!(office.groups().await, [4, 4]);
    office.permits.add_permits(10);
    assert_eq!(office.groups().await, [4, 4, 3]);
    drop(answers);
}

#[tokio::test]
async fn a_group_is_bounded_by_items_and_bytes_and_a_larger_entry_goes_alone() {
    let office = Office::new(Limits { groups: 1, ..LIMITS });
    let mut answers = vec![office.post(1, 1)];
    office.groups().await;
    let sizes = [(1, 50), (1, 50), (1, 1), (2, 2), (2, 2), (9, 9), (1, 200), (1, 1)];
    answers.extend(sizes.map(|(items, bytes)| office.post(items, bytes)));
    office.permits.add_permits(100);
    assert_eq!(office.groups().await, [1, 2, 3, 2, 9, 1, 1]);
    drop(answers);
}

#[tokio::test]
async fn as_many_bytes_as_a_group_holds_wait_for_no_others() {
    let office = Office::new(LIMITS);
    let mut answers = vec![office.post(3, 1)];
    assert_eq!(office.groups().await, [3]);
    answers.push(office.post(1, 99));
    assert_eq!(office.groups().await, [3]);
    answers.push(office.post(1, 1));
    assert_eq!(office.groups().await, [3, 2]);
    drop(answers);
}

#[tokio::test]
async fn an_urgent_entry_waits_for_no_others_once_it_is_at_the_front() {
    let office = Office::new(LIMITS);
    let answers = office.post_all(&[(3, 1), (3, 1), (1, 1)], 100);
    assert_eq!(office.groups().await, [3, 4]);
    drop(answers);
}

#[tokio::test]
async fn entries_that_do_not_fit_in_the_queue_are_refused_and_the_others_wait() {
    let office = Office::new(Limits { groups: 1, ..LIMITS });
    let first = office.post(1, 1);
    assert_eq!(office.groups().await, [1]);
    let mut answers = office.post_all(&[(3, 1), (3, 1), (2, 1)], 5);
    assert_eq!(office.commits.waiting(), 5);
    assert_eq!(answers.remove(1).await.unwrap(), Err(Refused::Full));
    assert_eq!(office.post_all(&[(1, 1)], 5).remove(0).await.unwrap(), Err(Refused::Full));
    office.permits.add_permits(10);
    for answer in answers {
        assert!(answer.await.unwrap().is_ok());
    }
    assert_eq!((first.await.unwrap(), office.commits.waiting()), (Ok(1), 0));
}

#[tokio::test]
async fn a_closed_group_commit_takes_nothing_and_finishes_what_waits() {
    let office = Office::new(LIMITS);
    let in_flight = office.post(3, 1);
    office.groups().await;
    let waits = office.post(1, 1);
    assert_eq!(office.groups().await, [3]);
    office.commits.close();
    assert_eq!(office.groups().await, [3, 1], "it waits for no others");
    assert_eq!(office.post(1, 1).await.unwrap(), Err(Refused::Closed));
    let (drained, ()) = tokio::join!(
        tokio::time::timeout(std::time::Duration::from_secs(60), office.commits.drained()),
        async {
            yield_now().await;
            office.permits.add_permits(2);
        }
    );
    assert_eq!(drained, Ok(()));
    assert_eq!((in_flight.await.unwrap(), waits.await.unwrap()), (Ok(3), Ok(1)));
    office.commits.drained().await;
}

#[tokio::test]
async fn what_waits_can_be_refused_while_groups_in_flight_go_on() {
    let office = Office::new(Limits { groups: 1, ..LIMITS });
    let in_flight = office.post(1, 1);
    office.groups().await;
    let waits = office.post(1, 1);
    office.commits.refuse_all();
    assert_eq!(waits.await.unwrap(), Err(Refused::Closed));
    assert_eq!(office.commits.waiting(), 0);
    office.permits.add_permits(1);
    assert_eq!(in_flight.await.unwrap(), Ok(1));
    office.commits.drained().await;
}

#[tokio::test]
async fn a_group_that_panics_holds_up_no_other() {
    let office = Office::new(Limits { groups: 1, ..LIMITS });
    office.permits.add_permits(100);
    let fails = [office.post(2, 0), office.post(2, 1)];
    let next = office.post(1, 1);
    for answer in fails {
        assert!(answer.await.is_err());
    }
    assert_eq!(next.await.unwrap(), Ok(1));
    assert_eq!(office.post(4, 1).await.unwrap(), Ok(4));
}

#[tokio::test]
async fn abandoned_entries_are_not_committed_and_do_not_pile_up() {
    let office = Office::new(Limits { groups: 1, ..LIMITS });
    let first = office.post(1, 1);
    office.groups().await;
    for _ in 0..10_000 {
        drop(office.post_all(&[(1, 1)], usize::MAX));
    }
    assert!(office.commits.shared.queue().waiting_entries() <= MIN_SWEEP_LEN);
    let last = office.post(1, 1);
    office.permits.add_permits(100);
    assert_eq!((first.await.unwrap(), last.await.unwrap()), (Ok(1), Ok(1)));
    assert_eq!(office.groups().await, [1, 1]);
    assert_eq!(office.commits.waiting(), 0);
}

#[test]
fn entries_are_dropped_if_the_runtime_has_stopped() {
    let office = Office::new(LIMITS);
    assert!(office.post(1, 1).blocking_recv().is_err());
}
