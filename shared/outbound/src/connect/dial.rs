//! Connecting to the first of several addresses that answers.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};

use crate::error::Why;

/// The most addresses of a host that are tried; more would not change that the host is away.
pub(crate) const ADDRESSES_TRIED: usize = 6;

/// The time after which the next address is tried beside one that has not answered.
const NEXT_AFTER: Duration = Duration::from_millis(300);

/// Connects to one of the addresses, in this order, within this time.
///
/// # Errors
/// Gives the reason of the last attempt that failed, or that none ended in time.
pub(super) async fn dial(addresses: &[SocketAddr], within: Duration) -> Result<TcpStream, Why> {
    timeout(within, race(addresses)).await.unwrap_or(Err(Why::Late(within)))
}

async fn race(addresses: &[SocketAddr]) -> Result<TcpStream, Why> {
    let mut left = addresses.iter().copied();
    let mut attempts = FuturesUnordered::new();
    attempts.extend(left.next().map(TcpStream::connect));
    let mut next = Instant::now() + NEXT_AFTER;
    let mut why = Why::NoAddress;
    loop {
        tokio::select! {
            ended = attempts.next() => match ended {
                Some(Ok(stream)) => return prepared(stream).map_err(|error| Why::io(&error)),
                Some(Err(error)) => why = Why::io(&error),
                None => return Err(why),
            },
            () = sleep_until(next), if left.len() > 0 => {}
        }
        attempts.extend(left.next().map(TcpStream::connect));
        next = Instant::now() + NEXT_AFTER;
    }
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    // A request is one small write that must not wait for the acknowledgement of the last one.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the addresses to try: both families by turns, so that one that does not work on this
/// network costs one attempt only. Each once, and [`ADDRESSES_TRIED`] at most.
pub(super) fn order(found: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    let first_is_v6 = found.first().is_some_and(IpAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered: Vec<SocketAddr> = Vec::new();
    loop {
        let turn: Vec<_> = first.next().into_iter().chain(second.next()).collect();
        if turn.is_empty() {
            return ordered;
        }
        for address in turn {
            let address = SocketAddr::new(address, port);
            if ordered.len() < ADDRESSES_TRIED && !ordered.contains(&address) {
                ordered.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(found: &[&str]) -> Vec<String> {
        let found = found.iter().map(|text| text.parse().unwrap()).collect();
        order(found, 443).iter().map(|address| address.ip().to_string()).collect()
    }

    #[test]
    fn families_are_tried_by_turns_beginning_with_the_preferred_one() {
        let found = ["2600::1", "2600::2", "8.8.8.8", "8.8.4.4"];
        assert_eq!(ordered(&found), ["2600::1", "8.8.8.8", "2600::2", "8.8.4.4"]);
        assert_eq!(ordered(&["8.8.8.8", "2600::1"]), ["8.8.8.8", "2600::1"]);
    }

    #[test]
    fn an_address_is_tried_once_and_only_a_few_are() {
        assert_eq!(ordered(&["8.8.8.8", "8.8.8.8"]), ["8.8.8.8"]);
        let many: Vec<_> = (0..50).map(|n| format!("8.8.8.{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(ordered(&many).len(), ADDRESSES_TRIED);
        assert!(ordered(&[]).is_empty());
    }
}
