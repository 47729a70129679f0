//! One HTTP/2 request: from its head to the end of its stream.
//!
//! Its answer is sent as soon as it exists. Bytes that the client still sends are read and dropped meanwhile,
//! as over HTTP/1: a stream that is reset right after an early answer makes some clients (curl before 8,
//! httpx) report the reset and not the answer.

use std::{future::poll_fn, sync::Arc, time::Duration};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{Method, Request, header::CONTENT_LENGTH};
use hyper::body::Body as _;
use tokio::time::timeout;

use super::{
    body::StreamBody,
    permits::{Permit, RequestPermits},
    secret_watch::{Look, SecretWatch},
};
use crate::{
    body::discard,
    handlers::Handlers,
    head::OwnedHead,
    metrics::{Http2Refusal, Metrics},
    rejection::Rejection,
    reply::Reply,
    server::{
        activity::{Activity, RequestGuard},
        receiving::{self, MAKES_ROOM},
    },
};

/// The longest time for which a client may give its stream no window for an answer, besides the time for its bytes.
const UNREAD_TIME: Duration = Duration::from_secs(10);
/// The least rate at which it has to read a long answer, in bytes a second.
const LEAST_RATE: usize = 1024;
/// The time for the rest of a body whose request was answered without it.
const REST_TIME: Duration = Duration::from_secs(5);
/// The most bytes of it that are read and dropped. A client that sends more sees its stream reset.
const REST_BYTES: usize = 16 * 1024 * 1024;

/// The answer to a request that finds no room among those in work.
const TOO_MANY_REQUESTS: Rejection =
    Rejection::Unavailable("the service has as many HTTP/2 requests in work as it may have");

/// The parts that the requests of a connection share.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    pub(super) handlers: Arc<Handlers>,
    pub(super) activity: Arc<Activity>,
    pub(super) permits: RequestPermits,
    pub(super) secret_watch: Arc<SecretWatch>,
    pub(super) metrics: Arc<Metrics>,
}

/// The beginning of a request.
enum Begun {
    InWork(RequestGuard, Permit),
    /// Its secret decides.
    Checked(RequestGuard),
    Refused(Rejection),
}

impl Requests {
    /// Serves a request in a task of its own. Its head is read now, so that the one that h2 has made of
    /// it is not held.
    pub(super) fn serve(
        &self,
        request: Request<RecvStream>,
        head: OwnedHead,
        respond: SendResponse<Bytes>,
    ) {
        let (parts, stream) = request.into_parts();
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let body = StreamBody::new(stream, length.and_then(|length| length.parse().ok()));
        drop(parts);
        let begun = self.begin();
        let requests = self.clone();
        tokio::spawn(async move { requests.answer(head, body, respond, begun).await });
    }

    fn begin(&self) -> Begun {
        let Some(in_work) = self.activity.begin_request() else {
            return Begun::Refused(MAKES_ROOM);
        };
        match self.permits.acquire() {
            Some(permit) => Begun::InWork(in_work, permit),
            None => Begun::Checked(in_work),
        }
    }

    async fn answer(
        &self,
        head: OwnedHead,
        mut body: StreamBody,
        mut respond: SendResponse<Bytes>,
        begun: Begun,
    ) {
        let answered = async {
            match begun {
                Begun::InWork(in_work, permit) => {
                    let reply = Box::pin(self.reply(&head, &mut body, in_work)).await;
                    (reply, Some(permit))
                }
                Begun::Checked(in_work) => match self.permit_of_app(&head).await {
                    Some(permit) => {
                        let reply = Box::pin(self.reply(&head, &mut body, in_work)).await;
                        (reply, Some(permit))
                    }
                    None => self.refuse(&head, TOO_MANY_REQUESTS),
                },
                Begun::Refused(rejection) => self.refuse(&head, rejection),
            }
        };
        let (reply, permit) = tokio::select! {
            biased;
            answered = answered => answered,
            // The client has reset the stream, or the connection has ended.
            _ = poll_fn(|cx| respond.poll_reset(cx)) => {
                self.look(&head, false).await;
                return;
            }
        };
        self.look(&head, reply.status().is_success()).await;
        let Some(permit) = permit else {
            // No work was done for the request, so the client may repeat it (RFC 9113 section 8.7).
            self.metrics.http2_refused(Http2Refusal::Requests);
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        };
        let is_head = head.method() == Method::HEAD;
        drop(head);
        self.send(reply, is_head, permit, body, respond).await;
    }

    /// Boxed by its callers: a request that is refused does not need the memory of one that is answered.
    async fn reply(&self, head: &OwnedHead, body: &mut StreamBody, in_work: RequestGuard) -> Reply {
        receiving::answer(&self.handlers, &head.as_head(), body, &in_work).await
    }

    /// A permit for a request whose secret is right.
    async fn permit_of_app(&self, head: &OwnedHead) -> Option<Permit> {
        let _check = self.permits.check()?;
        let memory = self.handlers.memory_of_caller(&head.as_head()).await?;
        self.permits.acquire_for(&memory)
    }

    /// Learns from a request that was answered, or given up, whether its client has a secret.
    async fn look(&self, head: &OwnedHead, is_success: bool) {
        let look = self.secret_watch.count(is_success);
        if look == Look::Away {
            return;
        }
        if self.handlers.memory_of_caller(&head.as_head()).await.is_some() {
            self.secret_watch.note_secret();
        } else if look == Look::AtLast && self.secret_watch.end() {
            self.metrics.http2_refused(Http2Refusal::NoSecret);
        }
    }

    fn refuse(&self, head: &OwnedHead, rejection: Rejection) -> (Reply, Option<Permit>) {
        (self.handlers.refuse(&head.as_head(), rejection), self.permits.refuse())
    }

    /// Sends an answer while the rest of the body is read and dropped.
    async fn send(
        &self,
        reply: Reply,
        is_head: bool,
        permit: Permit,
        mut body: StreamBody,
        mut respond: SendResponse<Bytes>,
    ) {
        // It counts until the answer was written and the rest of the body was read.
        let permit = Arc::new(permit);
        let (response, bytes) = reply.holding(Arc::clone(&permit)).into_http2();
        let is_end = is_head || bytes.is_empty();
        let Ok(mut stream) = respond.send_response(response, is_end) else { return };
        let rest = async {
            if !body.is_end_stream() {
                discard(&mut body, REST_BYTES, REST_TIME).await;
            }
        };
        if is_end {
            rest.await;
            return;
        }
        let time = UNREAD_TIME + Duration::from_secs((bytes.len() / LEAST_RATE) as u64);
        let sent = timeout(time, send_all(&mut stream, bytes));
        let (sent, ()) = tokio::join!(sent, rest);
        if sent.is_err() {
            self.metrics.http2_refused(Http2Refusal::UnreadStream);
            stream.send_reset(Reason::CANCEL);
        }
    }
}

/// Gives h2 as much at a time as the client's windows allow, because h2 cannot take back what it has.
async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    stream.reserve_capacity(bytes.len());
    while !bytes.is_empty() {
        while stream.capacity() == 0 {
            match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
        let piece = bytes.split_to(stream.capacity().min(bytes.len()));
        if stream.send_data(piece, bytes.is_empty()).is_err() {
            return;
        }
    }
}
