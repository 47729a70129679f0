//! The choice of pushes that are traced, and the trace of several pushes.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::{
    CALLER, TRACE,
    collector::{Collector, Received},
    is_connected, named, push, to_clients, traced_stack, traceparent,
};

/// Number of concurrent pushes.
const AT_ONCE: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_does_not_sample_is_obeyed_and_a_header_that_is_none_begins_a_trace() {
    let collector = Collector::start().await;
    let stack = traced_stack(&collector, &["--trace-ratio", "1"]).await;
    let url = collector.url();
    let _worker = stack.worker(&["--otlp-url", &url]).await;
    stack.import_crowd(1, 0).await;
    let body = to_clients(&["crowd-0"]);

    let refused = push(&stack, &[("traceparent", &traceparent(TRACE, "00"))], &body).await;
    stack.closed(&refused).await;
    let nonsense = traceparent(&TRACE.to_uppercase(), "01");
    for headers in [&[][..], &[("traceparent", &*nonsense)]] {
        let id = push(&stack, headers, &body).await;
        let of_message = |spans: &[Received]| -> Vec<Received> {
            let of = spans.iter().filter(|span| span.attribute("message_id") == id);
            of.cloned().collect()
        };
        let spans = collector
            .spans_when(|spans| {
                let spans = of_message(spans);
                ["push", "job", "batch"].iter().all(|name| !named(&spans, name).is_empty())
            })
            .await;
        let spans = of_message(&spans);
        assert!(is_connected(&spans, ""), "{spans:#?}");
        let request = named(&spans, "push")[0];
        assert_eq!(request.parent, "", "the trace begins with the request");
        let [job] = *named(&spans, "job") else { panic!("{spans:#?}") };
        let [batch] = *named(&spans, "batch") else { panic!("{spans:#?}") };
        assert_eq!((&job.parent, &batch.parent), (&request.id, &job.id));
        assert_eq!((batch.number("devices"), batch.number("sent")), (1, 1));
    }
    let spans = collector.spans();
    let of_refused: Vec<_> =
        spans.iter().filter(|span| span.attribute("message_id") == refused).collect();
    assert!(of_refused.is_empty(), "{of_refused:#?}");
    assert!(spans.iter().all(|span| span.trace != TRACE), "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_share_only_requests_of_callers_that_sample_are_traced() {
    let collector = Collector::start().await;
    let stack = traced_stack(&collector, &["--trace-ratio", "0"]).await;
    let url = collector.url();
    let _worker = stack.worker(&["--otlp-url", &url]).await;
    stack.import_crowd(1, 0).await;
    for _ in 0..10 {
        stack.closed(&push(&stack, &[], &to_clients(&["crowd-0"])).await).await;
    }
    // With two callers, neither is the parent.
    let [one, other] = ["a", "b"].map(|digit| traceparent(&digit.repeat(32), "01"));
    let both = [("traceparent", one.as_str()), ("traceparent", &other)];
    push(&stack, &both, &to_clients(&["crowd-0"])).await;
    let parent = traceparent(TRACE, "01");
    push(&stack, &[("traceparent", &parent)], &to_clients(&["crowd-0"])).await;
    let spans = collector.trace(TRACE, |spans| {
        let all = ["push", "publish", "job", "batch"];
        is_connected(spans, CALLER) && all.iter().all(|name| !named(spans, name).is_empty())
    });
    spans.await;
    let others: Vec<_> = collector.spans().into_iter().filter(|span| span.trace != TRACE).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_publish_of_an_envelope_is_linked_to_each_of_its_pushes() {
    let collector = Collector::start().await;
    let stack = traced_stack(&collector, &["--trace-ratio", "1"]).await;
    stack.import_crowd(1, 0).await;
    let body = to_clients(&["crowd-0"]);
    join_all((0..AT_ONCE).map(|_| push(&stack, &[], &body))).await;
    // Each push belongs to one envelope: its publish is a child of the first and linked to the rest.
    let published = |spans: &[Received]| -> Vec<String> {
        let publishes = named(spans, "publish").into_iter();
        publishes.flat_map(|span| span.links.iter().chain([&span.parent]).cloned()).collect()
    };
    let spans = collector
        .spans_when(|spans| {
            published(spans).len() >= AT_ONCE && named(spans, "push").len() == AT_ONCE
        })
        .await;
    let published = published(&spans);
    let unique: BTreeSet<&String> = published.iter().collect();
    let pushes: BTreeSet<&String> = named(&spans, "push").iter().map(|span| &span.id).collect();
    assert_eq!((published.len(), &unique), (AT_ONCE, &pushes));
    let publishes = named(&spans, "publish");
    assert!(publishes.len() < AT_ONCE, "no envelope had several pushes");
    let in_envelopes: u64 = publishes.iter().map(|span| span.number("pushes")).sum();
    assert_eq!(in_envelopes, AT_ONCE as u64);
}
