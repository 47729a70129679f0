//! Bodies that come in pieces, at times that the test gives.

use std::{io, sync::Arc};

use futures::{Stream, StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::time::{Instant, sleep};

pub(crate) use super::memory::tests::memory;
use super::{time_limits::RATE_GRACE, *};

const LIMIT: usize = 50_000;
const TIMEOUT: Duration = Duration::from_secs(15);
const RATE: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

const TIME: TimeLimits = TimeLimits { whole: TIMEOUT, least_rate: Some(RATE) };

type Piece = Result<Frame<Bytes>, io::Error>;

fn piece(bytes: usize) -> Piece {
    Ok(Frame::data(vec![b'x'; bytes].into()))
}

/// Pieces of so many bytes, one after each pause.
fn dripping(bytes: usize, pause: Duration) -> impl Stream<Item = Piece> {
    stream::repeat(()).then(move |()| async move {
        sleep(pause).await;
        piece(bytes)
    })
}

/// Reads a body; returns the result and the time that it took.
async fn read(
    pieces: impl Stream<Item = Piece> + Unpin,
    memory_bytes: usize,
) -> (Result<usize, BodyError>, Duration) {
    let mut body = StreamBody::new(pieces);
    let mut body = RequestBody::new(&mut body);
    let app = Arc::new(AppMemory::new(&memory(memory_bytes, memory_bytes)));
    let mut reservation = Reservation::empty(&app, Purpose::Single);
    let begun = Instant::now();
    let result = body.read(LIMIT, TIME, &mut reservation).await;
    let took = begun.elapsed();
    if result.is_err() {
        assert!(!body.can_be_discarded(LIMIT), "{result:?} is read again");
    }
    (result.map(|bytes| bytes.len()), took)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_failed_is_not_read_again() {
    let first = || stream::iter([piece(3)]);
    let broken = stream::iter([Err(io::Error::other("reset"))]);
    let large = stream::iter([piece(LIMIT)]);
    for (rest, why, after) in [
        (broken.boxed(), BodyError::Broken, Duration::ZERO),
        (stream::pending().boxed(), BodyError::Slow(RATE), RATE_GRACE + Duration::from_millis(3)),
        (large.boxed(), BodyError::TooLarge, Duration::ZERO),
    ] {
        let (result, took) = read(first().chain(rest), LIMIT).await;
        assert_eq!(result, Err(why));
        assert!(took >= after && took < after + Duration::from_millis(5), "{why:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_drips_ends_as_soon_as_it_is_behind_the_least_rate_and_a_slow_one_is_read() {
    let (result, took) = read(dripping(1, Duration::from_millis(100)).boxed(), LIMIT).await;
    assert_eq!(result, Err(BodyError::Slow(RATE)));
    assert!(took < RATE_GRACE + Duration::from_millis(200), "{took:?}");

    // A fifth faster than the least rate, for nearly all of the time that a body has.
    let slow = dripping(1200, Duration::from_secs(1)).take(14);
    let (result, took) = read(slow.boxed(), LIMIT).await;
    assert_eq!((result, took), (Ok(14 * 1200), Duration::from_secs(14)));
    let slow = dripping(1200, Duration::from_secs(1));
    assert_eq!(read(slow.boxed(), LIMIT).await, (Err(BodyError::Late), TIMEOUT));

    // It begins fast and then stops: what it had earned is used up before the whole time is over.
    let stops = dripping(3000, Duration::ZERO).take(1).chain(stream::pending());
    let (result, took) = read(stops.boxed(), LIMIT).await;
    assert_eq!(result, Err(BodyError::Slow(RATE)));
    assert_eq!(took.as_secs(), RATE_GRACE.as_secs() + 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_refused_when_what_has_arrived_finds_no_memory_and_not_before() {
    let pieces = || stream::iter((0..5).map(|_| piece(1000)));
    assert_eq!(read(pieces(), LIMIT).await.0, Ok(5000));
    let full = Err(BodyError::NoMemory(MemoryFull::App));
    assert_eq!(read(pieces(), 3000).await.0, full);
    assert_eq!(read(pieces().take(1), 1000).await.0, Ok(1000));
    assert_eq!(read(stream::pending(), WHILE_WAITING).await.0, Err(BodyError::Slow(RATE)));
    let waiting = read(stream::pending(), WHILE_WAITING - 1).await;
    assert_eq!(waiting, (full, Duration::ZERO), "nor does one that only waits");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_body_is_discarded_within_its_bounds_of_size_and_time() {
    let discards = async |pieces| {
        let begun = Instant::now();
        (discard(&mut StreamBody::new(pieces), LIMIT, TIMEOUT).await, begun.elapsed())
    };
    let many = |count: usize| stream::iter((0..count).map(|_| piece(1000))).boxed();
    assert_eq!(discards(many(LIMIT / 1000)).await, (true, Duration::ZERO));
    assert_eq!(discards(many(LIMIT / 1000 + 1)).await, (false, Duration::ZERO));
    let broken = stream::iter([Err(io::Error::other("reset"))]);
    assert_eq!(discards(broken.boxed()).await, (false, Duration::ZERO));
    for slow in [stream::pending().boxed(), dripping(1, Duration::from_millis(10)).boxed()] {
        assert_eq!(discards(slow).await, (false, TIMEOUT));
    }
}
