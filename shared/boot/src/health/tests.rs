//! Checks of all kinds, with paused time.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{report::PartStatus, *};

const SETTINGS: HealthSettings = HealthSettings {
    interval: Duration::from_secs(1),
    timeout: Duration::from_secs(2),
    max_age: Duration::from_secs(5),
    start_deadline: Duration::from_secs(30),
};

/// A queue whose state a test sets, and which counts how often it is checked.
#[derive(Debug, Clone, Default)]
struct Queue(Arc<(AtomicUsize, AtomicU32)>);

const OK: usize = 0;
const BROKEN: usize = 1;
const HANGS: usize = 2;
const PANICS: usize = 3;

impl Queue {
    fn set(&self, state: usize) {
        self.0.0.store(state, Ordering::Relaxed);
    }

    fn checks(&self) -> u32 {
        self.0.1.load(Ordering::Relaxed)
    }

    async fn check(self) -> PartState {
        self.0.1.fetch_add(1, Ordering::Relaxed);
        match self.0.0.load(Ordering::Relaxed) {
            OK => PartState::Ok,
            BROKEN => PartState::Failed("broken".to_owned()),
            HANGS => std::future::pending().await,
            _ => panic!("a fault of a check"),
        }
    }
}

/// A program whose queue is in this state, after its first check.
async fn program(state: usize) -> (Health, Queue, CancellationToken) {
    let stopping = CancellationToken::new();
    let (health, queue) = (Health::starting(SETTINGS, stopping.clone()), Queue::default());
    queue.set(state);
    let watched = queue.clone();
    health.watch("queue", Need::Required, move || watched.clone().check());
    health.complete();
    pass(Duration::from_millis(1)).await;
    (health, queue, stopping)
}

/// Lets the time pass, and the checks run that are due.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn queue_of(report: &Report) -> &PartReport {
    report.parts.iter().find(|part| part.name == "queue").unwrap()
}

#[tokio::test(start_paused = true)]
async fn asking_often_asks_the_servers_once_an_interval() {
    let (health, queue, _stopping) = program(OK).await;
    for _ in 0..100 {
        assert_eq!(health.report().status, Status::Ready);
    }
    assert_eq!(queue.checks(), 1);
    pass(SETTINGS.interval * 3).await;
    assert_eq!(queue.checks(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_awaited_is_checked_again_soon_and_then_less_often() {
    let (health, queue, _stopping) = program(BROKEN).await;
    let report = health.report();
    assert_eq!((report.status, report.ready), (Status::Starting, false));
    let part = queue_of(&report);
    assert_eq!((part.status, part.detail.as_deref()), (PartStatus::Awaited, Some("broken")));
    pass(Duration::from_millis(350)).await;
    assert_eq!(queue.checks(), 3, "after 100 ms, and after 200 ms more");
    queue.set(OK);
    pass(Duration::from_millis(400)).await;
    assert_eq!(health.report().status, Status::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_known_within_the_timeout_and_delays_no_answer() {
    let (health, queue, _stopping) = program(OK).await;
    queue.set(HANGS);
    pass(SETTINGS.interval).await;
    assert!(health.report().ready, "nothing else is known yet");
    pass(SETTINGS.timeout).await;
    let report = health.report();
    assert_eq!(report.status, Status::NotReady);
    assert_eq!(queue_of(&report).detail.as_deref(), Some("no answer within 2s"));
    assert_eq!(queue.checks(), 2, "one check at a time");
    queue.set(OK);
    pass(Duration::from_secs(3)).await;
    assert!(health.report().ready);
}

#[tokio::test(start_paused = true)]
async fn a_result_of_long_ago_is_not_taken_for_the_present_one() {
    let (health, queue, _stopping) = program(OK).await;
    queue.set(PANICS);
    pass(SETTINGS.max_age - Duration::from_millis(10)).await;
    assert!(health.report().ready);
    pass(Duration::from_secs(1)).await;
    let report = health.report();
    assert_eq!(report.status, Status::NotReady);
    let part = queue_of(&report);
    assert_eq!(part.detail.as_deref(), Some("not checked for longer than 5s"));
    assert_eq!(part.since, part.checked.unwrap().plus(SETTINGS.max_age));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_stops_is_not_ready_at_once_whatever_its_parts_say() {
    let (health, _queue, stopping) = program(OK).await;
    stopping.cancel();
    let report = health.report();
    assert_eq!((report.status, report.ready), (Status::Draining, false));
    assert_eq!(queue_of(&report).status, PartStatus::Ok);
    pass(SETTINGS.interval).await;
    assert_eq!(health.report().since, report.since);
}

#[tokio::test(start_paused = true)]
async fn a_program_is_not_ready_before_it_has_all_its_parts() {
    let health = Health::starting(SETTINGS, CancellationToken::new());
    assert_eq!(health.report().status, Status::Starting);
    health.watch("queue", Need::Required, || std::future::ready(PartState::Ok));
    pass(SETTINGS.interval).await;
    assert_eq!(health.report().status, Status::Starting);
    health.complete();
    assert_eq!(health.report().status, Status::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_only_reported_keeps_no_program_from_being_ready() {
    let (health, _queue, _stopping) = program(OK).await;
    health.watch("index", Need::Reported, || {
        std::future::ready(PartState::Failed("read only".to_owned()))
    });
    pass(SETTINGS.interval).await;
    let report = health.report();
    assert!(report.ready);
    assert_eq!(report.parts[1].detail.as_deref(), Some("read only"));
    assert!(!report.parts[1].required);
}

#[tokio::test(start_paused = true)]
async fn a_degraded_part_does_its_work() {
    let health = Health::starting(SETTINGS, CancellationToken::new());
    health.watch("index", Need::Required, || {
        std::future::ready(PartState::Degraded("one of three".to_owned()))
    });
    health.complete();
    pass(SETTINGS.interval).await;
    let report = health.report();
    assert_eq!((report.status, report.ready), (Status::Degraded, true));
    assert_eq!(report.parts[0].status, PartStatus::Degraded);
    assert_eq!(report.parts[0].detail.as_deref(), Some("one of three"));
}

/// Returns what is said of a part in each of these seconds, with its states. `other` is when the part that
/// may explain an outage works.
fn said(
    states: &[PartState],
    behind: impl Fn(Instant, u64) -> Option<Option<Instant>>,
) -> Vec<Option<Change>> {
    let (start, mut part) =
        (Instant::now(), Part::awaited("a".into(), Need::Required, UnixMillis(0)));
    let seconds = states.iter().zip(0..);
    let news = seconds.map(|(state, second)| {
        let now = start + Duration::from_secs(second);
        part.record(state.clone(), now, UnixMillis(0));
        part.news(behind(start, second), now)
    });
    news.collect()
}

#[test]
fn an_outage_is_said_once_when_it_begins_and_once_when_it_ends_with_its_length() {
    let failed = || PartState::Failed("refused".to_owned());
    let partly = || PartState::Degraded("one of two".to_owned());
    let (ok, alone) = (PartState::Ok, |_, _| None);
    let down = || Some(Change::Down("refused".to_owned()));
    let up = |seconds| Some(Change::Up(Duration::from_secs(seconds)));
    assert_eq!(
        said(&[ok.clone(), failed(), failed(), failed(), ok.clone(), ok.clone()], alone),
        [None, down(), None, None, up(3), None]
    );
    assert_eq!(said(&[failed(), ok.clone(), ok.clone()], alone), [None, None, None], "a start");
    let at_start = [failed(), failed(), failed(), failed(), failed(), ok.clone()];
    let reached = Some(Change::Reached(Duration::from_secs(5)));
    assert_eq!(said(&at_start, alone), [None, None, None, down(), None, reached]);
    let in_part = Some(Change::Partly("one of two".to_owned()));
    assert_eq!(
        said(&[ok.clone(), partly(), partly(), failed(), partly(), ok], alone),
        [None, in_part.clone(), None, down(), in_part, up(4)]
    );
}

#[test]
fn an_outage_that_another_one_explains_is_not_said_unless_it_outlasts_that() {
    let states = |failures| {
        let failed = vec![PartState::Failed("closed".to_owned()); failures];
        [vec![PartState::Ok], failed, vec![PartState::Ok]].concat()
    };
    // The other one is down from second 2 to second 9.
    let behind = |start: Instant, second| match second {
        0..2 => Some(Some(start)),
        2..10 => Some(None),
        _ => Some(Some(start + Duration::from_secs(10))),
    };
    assert!(said(&states(20), behind).iter().all(Option::is_none));
    let longer = said(&states(30), behind);
    let lines: Vec<_> = longer.iter().flatten().collect();
    assert!(matches!(lines[..], [Change::Down(_), Change::Up(_)]), "{lines:?}");
    assert_eq!(longer.iter().position(Option::is_some), Some(25));
}

#[test]
fn a_status_is_as_old_as_what_made_it() {
    let at = |ms: u64| UnixMillis(1_000_000 + ms);
    let now = Instant::now();
    let mut part = Part::awaited("queue".into(), Need::Required, at(0));
    let since = |part: &Part| part.report(now, SETTINGS.max_age).since;
    part.record(PartState::Failed("x".to_owned()), now, at(1));
    assert_eq!(since(&part), at(0), "it is awaited since the start");
    part.record(PartState::Ok, now, at(2));
    part.record(PartState::Ok, now, at(3));
    assert_eq!(since(&part), at(2));
    part.record(PartState::Failed("y".to_owned()), now, at(4));
    part.record(PartState::Failed("z".to_owned()), now, at(5));
    assert_eq!(since(&part), at(4));
    part.record(PartState::Ok, now, at(6));

    let failed = PartReport { status: PartStatus::Failed, ..part.report(now, SETTINGS.max_age) };
    let other = PartReport { since: at(9), ..part.report(now, SETTINGS.max_age) };
    let of = |parts| Report::of(parts, at(0), true, None).since;
    assert_eq!(of(vec![failed.clone(), other.clone()]), at(6), "since the first one failed");
    assert_eq!(of(vec![part.report(now, SETTINGS.max_age), other]), at(9), "since the last works");
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_what_may_come_and_says_what_it_waits_for() {
    let health = Health::starting(SETTINGS, CancellationToken::new());
    let tries = AtomicU32::new(0);
    let opened = health
        .open(
            "queue",
            |_| true,
            async || match tries.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Err(std::io::Error::other("refused")),
                tries => {
                    let report = health.report();
                    assert_eq!(report.status, Status::Starting);
                    let part = queue_of(&report);
                    assert_eq!(part.status, PartStatus::Awaited);
                    assert_eq!(part.detail.as_deref(), Some("refused"));
                    Ok(tries)
                }
            },
        )
        .await;
    assert_eq!(opened.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_start_ends_with_what_cannot_pass_and_with_its_time() {
    let fail = async || Err::<(), _>(std::io::Error::other("refused"));
    let health = Health::starting(SETTINGS, CancellationToken::new());
    let begun = Instant::now();
    assert!(health.open("queue", |_| false, fail).await.is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(health.open("queue", |_| true, fail).await.is_err());
    assert!(begun.elapsed() <= SETTINGS.start_deadline, "{:?}", begun.elapsed());
    assert!(begun.elapsed() >= SETTINGS.start_deadline - OPEN_PAUSE_LONGEST);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_told_to_stop_waits_no_longer() {
    let stopping = CancellationToken::new();
    let health = Health::starting(SETTINGS, stopping.clone());
    let open = health.open(
        "queue",
        |_| true,
        async || {
            stopping.cancel();
            Err::<(), _>(std::io::Error::other("refused"))
        },
    );
    let begun = Instant::now();
    assert!(open.await.is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_checks_end_with_the_program() {
    let (health, queue, _stopping) = program(OK).await;
    drop(health);
    let checks = queue.checks();
    pass(SETTINGS.interval * 3).await;
    assert_eq!(queue.checks(), checks);
}

#[test]
fn the_answer_is_json_with_times_that_are_read_by_people_and_programs() {
    let part = PartReport {
        name: "queue".to_owned(),
        status: PartStatus::Awaited,
        required: true,
        since: UnixMillis(1_500),
        checked: None,
        detail: None,
    };
    let report = Report::of(vec![part], UnixMillis(0), true, None);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "status": "starting",
            "ready": false,
            "since": "1970-01-01T00:00:00.000Z",
            "parts": [{
                "name": "queue",
                "status": "awaited",
                "required": true,
                "since": "1970-01-01T00:00:01.500Z",
                "checked": null
            }]
        })
    );
}
