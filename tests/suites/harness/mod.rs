//! The harness keeps what it promises to the other suites, and their list is true.

mod list;
mod runs;
mod servers;

use std::{
    process::Command,
    time::{Duration, SystemTime},
};

use push_tests::{clock::WrongClock, eventually, free_port, namespace};

/// Deadline of any wait here.
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn a_wrong_clock_is_so_much_ahead() {
    let clock = WrongClock::compile().unwrap();
    let ahead = Duration::from_hours(1);
    let mut date = Command::new("date");
    let output = date.arg("+%s").envs(clock.ahead(ahead)).output().unwrap();
    let shown: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let wrong = shown.abs_diff(now + ahead.as_secs());
    assert!(wrong < 60, "it is wrong by {wrong} s");
}

#[tokio::test]
#[should_panic(expected = "the tide turns; last seen: it rises")]
async fn a_condition_that_never_holds_fails_with_the_last_state_seen() {
    let never = async || Err::<(), _>("it rises".to_owned());
    eventually("the tide turns", Duration::from_millis(50), never).await;
}

#[test]
fn every_test_has_a_namespace_of_its_own_that_the_service_takes() {
    let (one, two) = (namespace(), namespace());
    assert_ne!(one, two);
    assert_eq!(push_model::namespace::namespace(&one), Ok(one.clone()));
}

#[test]
fn ports_are_given_to_one_owner_at_a_time() {
    let mut ports: Vec<_> = (0..100).map(|_| free_port().unwrap()).collect();
    let mut numbers: Vec<u16> = ports.iter().map(push_tests::Port::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
    let port = ports.pop().unwrap();
    std::net::TcpListener::bind(port.address()).unwrap();
}
