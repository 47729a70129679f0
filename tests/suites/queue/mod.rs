//! The queue: one contract for both engines, and the failures that only RabbitMQ has.
//!
//! - `contract`: what every engine promises
//! - `rabbitmq`: a topology that others change, unroutable messages, refused connections
//! - `restart`: outages and servers that stop answering
//! - `alarm`: memory and disk alarms
//! - `policies`: policies that an operator sets on the server
//! - `upgrade`: lanes that another version declared

mod alarm;
mod contract;
mod policies;
mod rabbitmq;
mod restart;
mod support;
mod upgrade;

use std::sync::Arc;

use push_queue::{
    Queue,
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use tempfile::TempDir;

/// A queue for one test alone, and the directory of its file.
struct TestQueue {
    queue: Arc<dyn Queue>,
    _directory: Option<TempDir>,
}

async fn on_rabbitmq() -> TestQueue {
    let queue = support::connect(&push_tests::amqp_url(), &push_tests::namespace()).await.unwrap();
    TestQueue { queue: Arc::new(queue), _directory: None }
}

async fn on_sqlite() -> TestQueue {
    let directory = tempfile::tempdir().unwrap();
    let (file, settings) = (directory.path().join("queue.sqlite3"), SqliteQueueSettings::default());
    let queue = SqliteQueue::open(&file, &push_tests::namespace(), settings).await.unwrap();
    TestQueue { queue: Arc::new(queue), _directory: Some(directory) }
}

/// Generates a test of each clause of the contract, for one engine.
macro_rules! keeps {
    ($engine:ident: $($clause:ident)*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $clause() {
                    let opened = super::$engine().await;
                    super::contract::$clause(opened.queue.clone()).await;
                    opened.queue.close().await;
                }
            )*
        }
    };
}

macro_rules! contract {
    ($($clause:ident)*) => {
        keeps!(on_rabbitmq: $($clause)*);
        keeps!(on_sqlite: $($clause)*);
    };
}

contract! {
    a_message_is_delivered_once_and_gone_after_its_ack
    messages_come_in_the_order_in_which_they_were_published
    what_is_dropped_undecided_comes_back_and_says_how_often
    what_is_requeued_comes_back_and_says_how_often
    a_delivery_is_ours_while_no_other_consumer_can_have_it
    prefetch_bounds_the_undecided_deliveries
    dropping_deliveries_does_not_use_up_the_prefetch
    a_delayed_message_comes_after_its_delay_and_soon_after
    a_long_delay_does_not_hold_up_a_short_one
    dead_letters_are_listed_without_being_removed
    dead_letters_are_replayed_by_name_and_all_together
    dead_letters_are_dropped_by_name_and_all_together
    what_kills_its_consumers_is_counted_until_a_worker_puts_it_aside
    two_consumers_share_a_lane
    lanes_do_not_mix
    a_message_of_a_mebibyte_arrives_whole
    cancelling_the_wait_loses_nothing
    concurrent_publishes_all_arrive
    the_depth_is_what_waits
    the_counts_are_what_waits_where_and_for_how_long
    a_dropped_consumer_gives_back_what_it_did_not_hand_out
    a_closed_queue_says_so
    the_server_answers_and_says_what_it_is
}
