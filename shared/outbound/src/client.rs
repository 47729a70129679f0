//! Sending requests to one origin.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, header, uri::Authority};
use tokio::time::Instant;

use crate::{
    connection::allowance::UNSTATED,
    exchange::{Answer, Exchange, Failed, NotProcessed, REQUEST_BYTES, Unanswered},
    origin::Origin,
    pool::{Outcome, Place, Shared},
};

/// The longest time that a request may take, whatever its deadline: it holds a place on a connection.
pub const EXCHANGE_MOST: Duration = Duration::from_secs(120);

/// Sends requests to one origin; cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) place: Place,
    /// Host and port as requests name them; `None` if no request can.
    pub(crate) authority: Option<Authority>,
    pub(crate) shared: Arc<Shared>,
}

impl Client {
    /// Sends a request and waits for its answer until the deadline. Of its URI only path and query
    /// are used. Redirects are not followed.
    ///
    /// A future that is dropped leaves it open if the request was processed.
    pub async fn send(&self, request: Request<Bytes>, deadline: Instant) -> Exchange {
        self.exchange(request, deadline).await.into()
    }

    async fn exchange(
        &self,
        mut request: Request<Bytes>,
        deadline: Instant,
    ) -> Result<Answer, Failed> {
        let size = request.body().len();
        if size > REQUEST_BYTES {
            return Err(NotProcessed::Unsendable.into());
        }
        let authority = self.authority.clone().ok_or(NotProcessed::Unsendable)?;
        let uri = self.origin().uri(authority, request.uri()).ok_or(NotProcessed::Unsendable)?;
        *request.uri_mut() = uri;
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
        let deadline = deadline.min(Instant::now() + EXCHANGE_MOST);
        let mut lease = self.shared.pool(&self.place)?.lease(deadline).await?;
        // What a dropped future leaves behind.
        lease.outcome = Outcome::GivenUp;
        let result = lease.sender.exchange(request, deadline).await;
        lease.outcome = outcome(&result, lease.sender.survives_silence());
        result
    }

    /// The requests that could begin now without waiting for others, on connections that are open
    /// or may be opened.
    pub fn capacity(&self) -> usize {
        let most = self.shared.limits.connections_per_origin;
        self.shared
            .find(&self.place)
            .map_or_else(|| most.saturating_mul(UNSTATED), |pool| pool.capacity())
    }

    /// Lets later requests use new connections; those in flight go on.
    pub fn renew(&self) {
        if let Some(pool) = self.shared.find(&self.place) {
            pool.renew();
        }
    }

    /// The origin.
    pub fn origin(&self) -> &Origin {
        &self.place.0
    }
}

/// What a request's result says about its connection. One with HTTP/1.1 cannot be used again if a
/// part of the answer was not read, or the server closes it.
fn outcome(result: &Result<Answer, Failed>, is_http2: bool) -> Outcome {
    match result {
        Ok(answer) if is_http2 || (answer.whole && !closes(answer)) => Outcome::Answered,
        Ok(_) => Outcome::AnsweredLast,
        Err(Failed::NotProcessed(NotProcessed::Refused)) => Outcome::Refused,
        Err(Failed::NotProcessed(_)) => Outcome::Unused,
        Err(Failed::Unanswered(Unanswered::Late | Unanswered::Reset(_))) => Outcome::GivenUp,
        Err(_) => Outcome::Failed,
    }
}

fn closes(answer: &Answer) -> bool {
    let close = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    answer.headers.get_all(header::CONNECTION).iter().any(close)
}
