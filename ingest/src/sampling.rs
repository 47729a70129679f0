//! Decides which requests are traced.
//!
//! A caller that traces has decided already, and its decision holds: otherwise a trace would have
//! holes. A share of the other requests is traced. It is decided before anything else is done for
//! the request, so one that is not traced costs no span.

use push_model::trace_parent::TraceParent;

/// Decides which requests are traced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    /// The share of the requests without a decision, from 0 to 1.
    ratio: f64,
}

/// The decision for one request that is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sampled {
    /// The caller's span; none if the trace begins here.
    pub(crate) parent: Option<TraceParent>,
}

impl Sampling {
    pub(crate) fn new(ratio: f64) -> Self {
        Self { ratio }
    }

    /// Decides if a request with this `traceparent` is traced. A header that does not follow the
    /// specification counts as absent. `random` gives a number from 0 to 1, 1 excluded.
    pub(crate) fn decide(
        self,
        traceparent: Option<&[u8]>,
        random: impl FnOnce() -> f64,
    ) -> Option<Sampled> {
        let parent = traceparent.and_then(TraceParent::parse);
        let is_sampled = parent.map_or_else(|| random() < self.ratio, |parent| parent.sampled);
        is_sampled.then_some(Sampled { parent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const NOT_SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn decide(ratio: f64, header: Option<&str>, random: f64) -> Option<Sampled> {
        Sampling::new(ratio).decide(header.map(str::as_bytes), || random)
    }

    #[test]
    fn the_decision_of_the_caller_holds() {
        let parent = TraceParent::parse(SAMPLED.as_bytes());
        assert_eq!(decide(0.0, Some(SAMPLED), 0.0), Some(Sampled { parent }));
        assert_eq!(decide(1.0, Some(NOT_SAMPLED), 0.0), None);
    }

    #[test]
    fn of_requests_without_a_decision_a_share_is_traced() {
        let root = Some(Sampled { parent: None });
        for header in [None, Some("00-nonsense"), Some("")] {
            assert_eq!(decide(0.25, header, 0.24), root, "{header:?}");
            assert_eq!(decide(0.25, header, 0.25), None, "{header:?}");
            assert_eq!(decide(0.0, header, 0.0), None, "{header:?}");
            assert_eq!(decide(1.0, header, 0.999), root, "{header:?}");
        }
    }
}
