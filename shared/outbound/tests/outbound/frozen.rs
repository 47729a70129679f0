//! A process that was frozen while answers came.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc::{SyncSender, sync_channel},
    time::Duration,
};

use push_outbound::Outbound;
use tokio::time::Instant;

use crate::support::{answered, patient, plain, post, wire::Wire};

/// The server's SETTINGS without a limit.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// The first bytes of a client.
const PREFACE: usize = 24;

/// The type of the frame that begins a request.
const HEADERS: u8 = 1;

/// The time in which the request must be answered.
const TIME: Duration = Duration::from_secs(3);

/// Answers one request while the client is frozen, and lets it go on when its time is over.
fn serve(
    listener: &TcpListener,
    arrived: &SyncSender<()>,
    thaw: &SyncSender<()>,
) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.write_all(&SETTINGS)?;
    stream.read_exact(&mut [0; PREFACE])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, ..] = head;
        stream.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize])?;
        if kind == HEADERS {
            break;
        }
    }
    arrived.send(()).unwrap();
    stream.write_all(&Wire::<tokio::net::TcpStream>::answer_bytes(1, b"{}"))?;
    let (_never, nothing) = sync_channel::<()>(1);
    let _ = nothing.recv_timeout(TIME);
    thaw.send(()).unwrap();
    TcpStream::read_to_end(&mut stream, &mut Vec::new()).map(drop)
}

/// The runtime has one worker, which stands still as a frozen process does.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_came_while_the_process_was_frozen_is_read_before_the_request_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (arrived, arrives) = sync_channel(1);
    let (thaw, thaws) = sync_channel(1);
    let server = std::thread::spawn(move || serve(&listener, &arrived, &thaw));
    let outbound = Outbound::new(patient()).unwrap();
    let client = plain(&outbound, address);
    let deadline = Instant::now() + TIME;
    let sent = tokio::spawn(async move { client.send(post("/", ""), deadline).await });
    let frozen = tokio::spawn(async move {
        while arrives.try_recv().is_err() {
            assert!(Instant::now() < deadline, "the request does not arrive");
            tokio::task::yield_now().await;
        }
        thaws.recv().unwrap();
    });
    frozen.await.unwrap();
    let answer = answered(sent.await.unwrap());
    assert_eq!((answer.status.as_u16(), answer.whole), (200, true));
    outbound.close().await;
    server.join().unwrap().unwrap();
}
