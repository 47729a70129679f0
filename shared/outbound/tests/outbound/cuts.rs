//! Connections that are cut at every byte: what is said of a request must be true.

use std::{io, time::Duration};

use push_outbound::{Exchange, Outbound, Unanswered};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::support::{answered, keyed, listen, patient, send, unanswered, wire::Wire};

/// The server's SETTINGS without a limit.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Reads so many bytes of the client, as far as they come.
async fn read(stream: &mut TcpStream, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut filled = 0;
    while filled < most {
        match stream.read(bytes.get_mut(filled..).unwrap()).await? {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Returns true if there is a whole HEADERS frame among the client's bytes.
fn has_request(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let [a, b, c, kind, tail @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some(next) = tail.get(5 + length..) else { return false };
        if *kind == 1 {
            return true;
        }
        rest = next;
    }
    false
}

#[tokio::test]
async fn a_request_that_the_server_has_is_never_called_not_processed_wherever_it_is_cut() {
    let (listener, address) = listen().await;
    let mut undecided = 0;
    let outbound = Outbound::new(patient()).unwrap();
    for offset in (24..300).step_by(3) {
        let client = keyed(&outbound, address, &offset.to_string());
        let sent = tokio::spawn(async move { send(&client, "/").await });
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&SETTINGS).await.unwrap();
        let reading = timeout(Duration::from_secs(2), read(&mut stream, offset));
        // Behind all that the client sends.
        let Ok(bytes) = reading.await else { break };
        let bytes = bytes.unwrap();
        drop(stream);
        match sent.await.unwrap() {
            Exchange::Unanswered(_) => undecided += 1,
            Exchange::NotProcessed(why) => assert!(!has_request(&bytes), "{offset}: {why}"),
            Exchange::Answered(answer) => panic!("{offset}: {answer:?}"),
        }
    }
    assert!(undecided > 10, "{undecided}");
}

#[tokio::test]
async fn an_answer_that_is_cut_is_unanswered_or_an_answer_that_is_not_whole() {
    let (listener, address) = listen().await;
    let bytes = Wire::<TcpStream>::answer_bytes(1, b"{\"name\":\"projects/p/messages/1\"}");
    let head = 10;
    let outbound = Outbound::new(patient()).unwrap();
    for cut in 0..=bytes.len() {
        let client = keyed(&outbound, address, &cut.to_string());
        let sent = tokio::spawn(async move { send(&client, "/").await });
        let mut wire = Wire::accept(&listener, None).await;
        let id = wire.request().await;
        assert_eq!(id, 1);
        wire.write(&bytes[..cut]).await;
        drop(wire);
        let sent = sent.await.unwrap();
        if cut < head {
            assert_eq!(unanswered(sent), Unanswered::Lost, "{cut}");
        } else {
            let answer = answered(sent);
            assert_eq!(answer.status, 200);
            assert_eq!(answer.whole, cut == bytes.len(), "{cut}");
        }
    }
}
