use super::*;

const LIMITS: AdmissionLimits = AdmissionLimits {
    connections: 5,
    of_address: 3,
    unauthenticated: 4,
    unauthenticated_of_address: 2,
};

fn admit(admission: &Arc<Admission>, peer: &str) -> Result<Permit, Full> {
    admission.admit(peer.parse().unwrap())
}

fn log_in(admission: &Arc<Admission>, peer: &str) -> Permit {
    let permit = admit(admission, peer).unwrap();
    permit.logged_in();
    permit
}

#[tokio::test]
async fn idle_connections_of_one_address_leave_room_for_its_devices_and_for_others() {
    let admission = Admission::new(LIMITS);
    let idle = [admit(&admission, "10.0.0.1").unwrap(), admit(&admission, "10.0.0.1").unwrap()];
    assert_eq!(admit(&admission, "10.0.0.1").unwrap_err(), Full::Address);
    let others = [admit(&admission, "10.0.0.2").unwrap(), admit(&admission, "10.0.0.3").unwrap()];
    let late = admit(&admission, "10.0.0.4").unwrap();
    assert!(idle[0].displaced().is_cancelled(), "the newest takes the place of the oldest");
    late.logged_in();
    assert_eq!(admit(&admission, "10.0.0.5").unwrap_err(), Full::Total);
    assert!(
        [&idle[1], &others[0], &others[1], &late]
            .map(Permit::displaced)
            .iter()
            .all(|it| !it.is_cancelled())
    );
    drop((idle, others, late));
    let usage = admission.usage();
    assert_eq!((usage.connections, usage.unauthenticated, usage.not_accepted), (0, 0, 3));
    assert!(admission.counts().addresses.is_empty());
}

#[tokio::test]
async fn connections_of_an_address_and_in_total_are_bounded_and_given_back() {
    let admission = Admission::new(LIMITS);
    let mut one: Vec<Permit> = (0..3).map(|_| log_in(&admission, "10.0.0.1")).collect();
    assert_eq!(admit(&admission, "10.0.0.1").unwrap_err(), Full::Address);
    let two: Vec<Permit> = (0..2).map(|_| log_in(&admission, "10.0.0.2")).collect();
    assert_eq!(admit(&admission, "10.0.0.3").unwrap_err(), Full::Total);
    one.pop();
    assert!(admit(&admission, "10.0.0.1").is_ok());
    drop((one, two));
    let usage = admission.usage();
    assert_eq!((usage.connections, usage.unauthenticated, usage.not_accepted), (0, 0, 2));
    assert!(admission.counts().addresses.is_empty());
}

#[tokio::test]
async fn an_address_is_one_customer_in_ipv6_and_the_same_in_both_families() {
    let admission = Admission::new(LIMITS);
    let _permits = [
        admit(&admission, "2001:db8:0:1::1").unwrap(),
        admit(&admission, "2001:db8:0:1:ffff::2").unwrap(),
        admit(&admission, "::ffff:10.0.0.1").unwrap(),
    ];
    assert_eq!(admit(&admission, "2001:db8:0:1:2::3").unwrap_err(), Full::Address);
    assert!(admit(&admission, "2001:db8:0:2::1").is_ok());
    let _second = admit(&admission, "10.0.0.1").unwrap();
    assert_eq!(admission.counts().addresses.len(), 2);
}

#[tokio::test]
async fn an_address_that_fails_to_log_in_too_often_is_not_answered_and_others_are() {
    let admission = Admission::new(LIMITS);
    let now = Instant::now();
    let fail = |peer, now| admit(&admission, peer).unwrap().login_failed(now);
    for _ in 0..=FAILURES {
        assert!(fail("10.0.0.1", now));
    }
    assert!(!fail("10.0.0.1", now) && !fail("10.0.0.1", now));
    assert!(fail("10.0.0.2", now));
    assert!(fail("10.0.0.1", now + FAILURE_INTERVAL), "one more, however many came meanwhile");
    assert!(!fail("10.0.0.1", now + FAILURE_INTERVAL));
}

#[tokio::test]
async fn an_address_is_remembered_for_as_long_as_its_failed_logins_count() {
    let admission = Admission::new(LIMITS);
    let now = Instant::now();
    let connected = log_in(&admission, "10.0.0.1");
    for (peer, failures) in [("10.0.0.2", 30), ("10.0.0.3", 60)] {
        for _ in 0..failures {
            assert!(admit(&admission, peer).unwrap().login_failed(now));
        }
    }
    let remembered = |after: u32| {
        let mut counts = admission.counts();
        counts.forget_unused(now + FAILURE_INTERVAL * after);
        let mut addresses: Vec<_> = counts.addresses.keys().map(ToString::to_string).collect();
        addresses.sort();
        addresses
    };
    assert_eq!(remembered(29), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    assert_eq!(remembered(30), ["10.0.0.1", "10.0.0.3"]);
    assert_eq!(remembered(60), ["10.0.0.1"], "it is connected");
    drop(connected);
    assert_eq!(remembered(60), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn addresses_are_forgotten_by_themselves() {
    let admission = Admission::new(LIMITS);
    let forgetting = tokio::spawn(Admission::forget_addresses(Arc::downgrade(&admission)));
    assert!(admit(&admission, "10.0.0.1").unwrap().login_failed(Instant::now()));
    assert_eq!(admission.counts().addresses.len(), 1);
    tokio::time::sleep(2 * FORGET_INTERVAL).await;
    assert_eq!(admission.counts().addresses.len(), 0);
    drop(admission);
    forgetting.await.unwrap();
}
