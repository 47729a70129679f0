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

fn displaced<'a>(permits: impl IntoIterator<Item = &'a Permit>) -> Vec<bool> {
    permits.into_iter().map(|permit| permit.displaced().is_cancelled()).collect()
}

fn assert_is_empty(admission: &Admission) {
    let counts = admission.counts();
    assert!(counts.addresses.is_empty() && counts.pending.is_empty(), "{counts:?}");
    assert_eq!((counts.connections, counts.ending), (0, 0));
}

#[tokio::test]
async fn idle_connections_of_one_address_leave_room_for_its_devices_and_for_others() {
    let admission = Admission::new(LIMITS);
    let idle = [admit(&admission, "10.0.0.1").unwrap(), admit(&admission, "10.0.0.1").unwrap()];
    let device = admit(&admission, "10.0.0.1").unwrap();
    assert_eq!(displaced([&idle[0], &idle[1], &device]), [true, false, false], "its oldest goes");
    device.logged_in();
    let others = ["10.0.0.2", "10.0.0.3", "10.0.0.4"].map(|peer| admit(&admission, peer).unwrap());
    assert_eq!(displaced(&others), [false; 3]);
    let usage = admission.usage();
    assert_eq!((usage.connections, usage.unauthenticated, usage.displaced), (5, 4, 1));
    // All connections are in use, and the oldest without a login makes room.
    let late = admit(&admission, "10.0.0.5").unwrap();
    assert_eq!(displaced([&idle[1], &others[0], &late]), [true, false, false]);
    drop((idle, others, late, device));
    let usage = admission.usage();
    assert_eq!((usage.connections, usage.unauthenticated, usage.not_accepted), (0, 0, 0));
    assert_is_empty(&admission);
}

#[tokio::test]
async fn the_address_with_most_connections_gives_one_up() {
    let limits = AdmissionLimits { of_address: 10, unauthenticated_of_address: 10, ..LIMITS };
    let admission = Admission::new(limits);
    let slow = admit(&admission, "10.0.0.1").unwrap();
    let mut flood: Vec<Permit> = Vec::new();
    for n in 0..100 {
        // However many addresses there are, one that has a single connection keeps it.
        let permit = admit(&admission, ["10.0.0.2", "10.0.0.3"][n % 2]).unwrap();
        permit.client_spoke();
        flood.push(permit);
        flood.retain(|permit| !permit.displaced().is_cancelled());
    }
    assert_eq!(displaced([&slow]), [false], "although it is the oldest and has sent nothing");
    assert_eq!(admission.usage().unauthenticated, LIMITS.unauthenticated);
}

#[tokio::test]
async fn the_stage_with_most_connections_makes_room_and_a_login_that_is_checked_never() {
    let limits = AdmissionLimits { unauthenticated_of_address: 3, ..LIMITS };
    let admission = Admission::new(limits);
    let [checked, spoke, silent] = [(); 3].map(|()| admit(&admission, "10.0.0.1").unwrap());
    assert!(checked.begin_check());
    spoke.client_spoke();
    let all = [&checked, &spoke, &silent];
    let next = [(); 2].map(|()| {
        let permit = admit(&admission, "10.0.0.1").unwrap();
        permit.client_spoke();
        (permit, displaced(all))
    });
    assert_eq!(next[0].1, [false, false, true]);
    assert_eq!(next[1].1, [false, true, true]);
    assert!(!spoke.begin_check(), "it has to end");
    for (permit, _) in &next {
        assert!(permit.begin_check());
    }
    assert_eq!(admit(&admission, "10.0.0.1").unwrap_err(), Full::Address, "all are checked");
    drop(checked);
    let silent = admit(&admission, "10.0.0.1").unwrap();
    next[1].0.refused();
    let _newest = admit(&admission, "10.0.0.1").unwrap();
    assert_eq!(displaced([&next[0].0, &next[1].0, &silent]), [false, true, false]);
}

#[tokio::test]
async fn a_flood_displaces_no_device_whatever_it_sends_and_however_far_the_device_is() {
    const OF_ADDRESS: usize = 100;
    /// Arrivals of the flood during a slow step of a device: 0.4 s at 100 a second.
    const STEP: usize = 40;
    const DEVICES: usize = 24;
    let limits = AdmissionLimits {
        connections: 1_000,
        of_address: 1_000,
        unauthenticated: 1_000,
        unauthenticated_of_address: OF_ADDRESS,
    };
    let silent: fn(&Permit) = |_| {};
    let stages = [silent, Permit::client_spoke, Permit::client_greeted];
    for flood_comes_to in stages {
        let admission = Admission::new(limits);
        let mut flood = Vec::new();
        let mut arrive = |n: usize| {
            for _ in 0..n {
                let permit = admit(&admission, "10.0.0.1").unwrap();
                flood_comes_to(&permit);
                flood.push(permit);
                flood.retain(|permit| !permit.displaced().is_cancelled());
            }
        };
        arrive(2 * OF_ADDRESS);
        let devices = [(); DEVICES].map(|()| admit(&admission, "10.0.0.1").unwrap());
        for device_comes_to in stages {
            devices.iter().for_each(device_comes_to);
            arrive(STEP);
            assert_eq!(displaced(&devices), [false; DEVICES]);
        }
        assert!(devices.iter().all(Permit::begin_check));
    }
}

#[tokio::test]
async fn idle_connections_displace_no_client_that_has_begun_to_log_in() {
    let limits = AdmissionLimits { unauthenticated_of_address: 3, ..LIMITS };
    let admission = Admission::new(limits);
    let begun = admit(&admission, "10.0.0.1").unwrap();
    begun.client_spoke();
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(admit(&admission, "10.0.0.1").unwrap());
        idle.retain(|permit| !permit.displaced().is_cancelled());
    }
    assert!(begun.begin_check());
}

#[tokio::test]
async fn displaced_connections_that_do_not_end_are_bounded() {
    let limits = AdmissionLimits { unauthenticated: 1, ..LIMITS };
    let admission = Admission::new(limits);
    let mut kept = Vec::new();
    for n in 0..=ENDING {
        kept.push(admit(&admission, &format!("10.0.1.{n}")).unwrap());
    }
    assert_eq!(admit(&admission, "10.0.2.1").unwrap_err(), Full::Total);
    kept.remove(0);
    kept.push(admit(&admission, "10.0.2.1").unwrap());
    assert_eq!(admission.usage().connections, 1);
    drop(kept);
    assert_is_empty(&admission);
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
    assert_eq!((usage.displaced, usage.not_accepted), (0, 2));
    assert_is_empty(&admission);
}

#[tokio::test]
async fn an_address_is_one_customer_in_ipv6_and_the_same_in_both_families() {
    let admission = Admission::new(LIMITS);
    let permits = [
        admit(&admission, "2001:db8:0:1::1").unwrap(),
        admit(&admission, "2001:db8:0:1:ffff::2").unwrap(),
        admit(&admission, "::ffff:10.0.0.1").unwrap(),
    ];
    let _third = admit(&admission, "2001:db8:0:1:2::3").unwrap();
    assert_eq!(displaced(&permits), [true, false, false], "it is of the same network");
    let _other = admit(&admission, "2001:db8:0:2::1").unwrap();
    let _second = admit(&admission, "10.0.0.1").unwrap();
    assert_eq!(admission.counts().addresses.len(), 3);
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
