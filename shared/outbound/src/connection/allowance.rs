//! The number of requests that a connection may carry at a time. Pure.
//!
//! The server states its limit in SETTINGS and may change it at any time. Some servers end the
//! connection over one stream too many, and some refuse streams below their own limit, so what was
//! refused is learnt from.

/// The most requests at a time on a connection, whatever its server allows. More would wait for the
/// same bytes of the network, and would all be lost with the connection.
pub(crate) const MOST: usize = 1000;

/// The requests at a time if the server states no limit: RFC 9113 recommends servers to allow this
/// many at least (section 6.5.2).
pub(crate) const UNSTATED: usize = 100;

/// The requests that one connection may carry at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    stated: usize,
    /// The limit that a refusal taught, until answers show that there is more room.
    learnt: Option<usize>,
    /// The answers since the learnt limit last grew.
    answers: usize,
}

impl Allowance {
    /// Takes over the limit that the server stated; `usize::MAX` if it stated none.
    pub(crate) fn new(stated: usize) -> Self {
        let stated = if stated == usize::MAX { UNSTATED } else { stated.min(MOST) };
        Self { stated, learnt: None, answers: 0 }
    }

    /// The most requests at a time.
    pub(crate) fn limit(&self) -> usize {
        self.learnt.map_or(self.stated, |learnt| learnt.min(self.stated))
    }

    /// Notes that the server changed its limit. What was learnt under the earlier one is forgotten.
    pub(crate) fn state(&mut self, stated: usize) {
        *self = Self::new(stated);
    }

    /// Notes a refusal beside so many other requests.
    pub(crate) fn refused(&mut self, others: usize) {
        self.learnt = Some(others.clamp(1, self.limit().max(1)));
        self.answers = 0;
    }

    /// Notes an answer: the learnt limit grows by one with as many answers as it has requests, so
    /// about one request in a round of them is refused again.
    pub(crate) fn answered(&mut self) {
        let Some(learnt) = &mut self.learnt else { return };
        self.answers += 1;
        if self.answers >= *learnt {
            *learnt += 1;
            self.answers = 0;
        }
        if *learnt >= self.stated {
            self.learnt = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_server_states_and_never_more_than_ours() {
        assert_eq!(Allowance::new(1).limit(), 1);
        assert_eq!(Allowance::new(usize::MAX).limit(), UNSTATED);
        assert_eq!(Allowance::new(1_000_000).limit(), MOST);
        let mut allowance = Allowance::new(100);
        allowance.state(0);
        assert_eq!(allowance.limit(), 0);
    }

    #[test]
    fn a_refusal_lowers_the_limit_and_answers_raise_it_slowly() {
        let mut allowance = Allowance::new(100);
        allowance.refused(10);
        assert_eq!(allowance.limit(), 10);
        (0..10).for_each(|_| allowance.answered());
        assert_eq!(allowance.limit(), 11);
        (0..100_000).for_each(|_| allowance.answered());
        assert_eq!(allowance, Allowance::new(100));
    }

    #[test]
    fn a_server_that_refuses_all_is_still_asked_for_one() {
        let mut allowance = Allowance::new(100);
        allowance.refused(0);
        assert_eq!(allowance.limit(), 1);
    }
}
