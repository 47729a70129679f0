//! The delays that the queues make, and the properties of every queue.

use super::*;

#[test]
fn a_delay_is_rounded_up_by_at_most_a_quarter_and_one_second() {
    for millis in (1..=MAX_DELAY.as_millis() as u64).step_by(7) {
        let delay = Duration::from_millis(millis);
        let waits = Duration::from_secs(rounded_up(delay).into());
        assert!(waits >= delay, "{delay:?} became {waits:?}");
        assert!(
            waits <= delay.mul_f64(1.25) + Duration::from_secs(1),
            "{delay:?} became {waits:?}"
        );
        assert!(rounded_up(delay).count_ones() <= SIGNIFICANT_BITS);
    }
}

#[test]
fn the_longest_delay_fits_into_the_queues_and_longer_ones_are_cut() {
    assert_eq!(u64::from(rounded_up(MAX_DELAY)), MAX_DELAY.as_secs());
    assert!(rounded_up(MAX_DELAY) < 1 << LEVELS);
    assert_eq!(rounded_up(Duration::MAX), rounded_up(MAX_DELAY));
}

/// Follows a delayed message through the topology, as the broker would: how long it waits, and the
/// queue it ends in.
fn travel(names: &Names, address: &Address) -> (Duration, String) {
    let topology = names.topology();
    let matches = |pattern: &str, key: &str| {
        let (pattern, exact) = match pattern.strip_suffix(".#") {
            Some(start) => (start.split('.').collect::<Vec<_>>(), false),
            None => (pattern.trim_start_matches("#.").split('.').collect(), true),
        };
        let key: Vec<&str> = key.split('.').collect();
        let key = if exact { &key[key.len() - pattern.len()..] } else { &key[..pattern.len()] };
        pattern.iter().zip(key).all(|(p, k)| *p == "*" || p == k)
    };
    let (mut exchange, mut waited) = (address.exchange.clone(), 0);
    loop {
        let mut routes = topology
            .bindings
            .iter()
            .filter(|b| b.source == exchange && matches(&b.pattern, &address.routing_key));
        let binding = routes.next().expect("every message has a route");
        assert_eq!(routes.next(), None, "a message is never doubled");
        let queue = match &binding.target {
            Target::Exchange(next) => {
                exchange = next.clone();
                continue;
            }
            Target::Queue(queue) => topology.queues.iter().find(|q| q.name == *queue).unwrap(),
        };
        let argument =
            |name| queue.arguments.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        match (argument("x-message-ttl"), argument("x-dead-letter-exchange")) {
            (Some(Argument::Int(ttl)), Some(Argument::Text(next))) => {
                waited += u64::try_from(ttl).unwrap();
                exchange = next;
            }
            _ => return (Duration::from_millis(waited), queue.name.clone()),
        }
    }
}

#[test]
fn every_delay_ends_in_its_lane_after_its_time() {
    let names = Names::new("push".to_owned());
    for seconds in 1..=MAX_DELAY.as_secs() {
        let delay = Duration::from_secs(seconds);
        for lane in Lane::QUEUES {
            let (waited, queue) = travel(&names, &names.delayed_address(lane, delay));
            assert_eq!(queue, names.lane(lane));
            assert_eq!(waited, Duration::from_secs(rounded_up(delay).into()));
        }
    }
}

#[test]
fn every_queue_is_a_quorum_queue_that_refuses_what_does_not_fit_and_delay_queues_lose_nothing() {
    let at_least_once = ("x-dead-letter-strategy", Argument::Text("at-least-once".to_owned()));
    for queue in Names::new("push".to_owned()).topology().queues {
        assert_eq!(queue.arguments[0], ("x-queue-type", Argument::Text("quorum".to_owned())));
        let delays = queue.name.starts_with("push.delay.");
        let refuses = ("x-overflow", Argument::Text("reject-publish".to_owned()));
        assert!(queue.arguments.contains(&refuses), "{}", queue.name);
        assert_eq!(queue.arguments.contains(&at_least_once), delays, "{}", queue.name);
    }
}

#[test]
fn what_is_consumed_is_never_dropped_by_a_limit_of_some_version() {
    let never = ("x-delivery-limit", Argument::Int(i32::MAX));
    let names = Names::new("push".to_owned());
    for name in Lane::QUEUES.map(|lane| names.lane(lane)).into_iter().chain([names.dead_letters()])
    {
        let queue = names.topology().queues.into_iter().find(|q| q.name == name).unwrap();
        assert!(queue.arguments.contains(&never), "{name}");
    }
}
