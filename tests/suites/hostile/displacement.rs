//! Connections to the MQTT broker of `pushctl standalone` that never log in, while devices do.

use std::{net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};

use crate::hostile::{
    embedded_broker::{CONNACK, DEADLINE, MQTT_5, login},
    standalone::{LONG, Standalone},
};

/// Devices behind one address, which log in one after the other.
const DEVICES: usize = 60;
/// The pause between two idle connections: 100 a second.
const PAUSE: Duration = Duration::from_millis(10);
/// Duration of a slow login, from its first byte to its last.
const SLOW: Duration = Duration::from_millis(400);
/// Devices that say nothing for a while before they log in.
const SLOW_DEVICES: usize = 5;
/// Idle connections of the flood, and the addresses that they come from.
const FLOOD: u32 = 6_000;
const ADDRESSES: u32 = 60;

/// Connects from this address; `None` if the broker does not take the connection.
async fn connect(from: Ipv4Addr, standalone: &Standalone) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let connecting = socket.connect(standalone.mqtt.address().parse().unwrap());
    timeout(DEADLINE, connecting).await.ok()?.ok()
}

/// Logs in over a connection from this address, with a pause before CONNECT and one in the middle of it.
/// Returns true if the broker lets the device in.
async fn logs_in(
    standalone: &Standalone,
    from: Ipv4Addr,
    name: &str,
    [before, within]: [Duration; 2],
) -> bool {
    let Some(mut stream) = connect(from, standalone).await else { return false };
    let bytes = login(MQTT_5, name, &standalone.token(name, LONG));
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut answer = [0; 4];
    let login = async {
        sleep(before).await;
        stream.write_all(first).await?;
        sleep(within).await;
        stream.write_all(rest).await?;
        stream.read_exact(&mut answer).await
    };
    timeout(DEADLINE, login).await.expect("an answer or an end").is_ok()
        && answer[0] == CONNACK
        && answer[3] == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn every_device_logs_in_from_an_address_that_opens_idle_connections_all_the_time() {
    let standalone = Standalone::start(None).await;
    // They send nothing, or the first byte of CONNECT.
    for (last, opening) in [(1, &[][..]), (2, &[0x10])] {
        let address = Ipv4Addr::new(127, 0, 3, last);
        let mut idle = Vec::new();
        let attack = async {
            loop {
                if let Some(mut connection) = connect(address, &standalone).await {
                    // It may be displaced by now.
                    let _ = connection.write_all(opening).await;
                    idle.push(connection);
                }
                sleep(PAUSE).await;
            }
        };
        let devices = async {
            // The address has used up what it may have.
            sleep(PAUSE * 200).await;
            let mut refused = Vec::new();
            for n in 0..DEVICES {
                let before = if n < SLOW_DEVICES { SLOW } else { Duration::ZERO };
                let name = format!("behind-{last}-{n}");
                if !logs_in(&standalone, address, &name, [before, PAUSE]).await {
                    refused.push(name);
                }
            }
            refused
        };
        let refused = tokio::select! {
            () = attack => unreachable!("it goes on"),
            refused = devices => refused,
        };
        assert!(refused.is_empty(), "{opening:?}: {refused:?}");
    }
    assert!(standalone.metric("push_broker_connections_displaced_total").await > 0);
    assert_eq!(standalone.metric("push_broker_connections_not_accepted_total").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_takes_a_while_is_not_displaced_by_a_flood_from_many_addresses() {
    let standalone = Standalone::start(None).await;
    let begun = Instant::now();
    let flood = async {
        let mut idle = std::collections::VecDeque::new();
        for n in 0..FLOOD {
            let from = Ipv4Addr::from_bits(0x7f00_0401 + n % ADDRESSES);
            idle.extend(connect(from, &standalone).await);
            if idle.len() > 2_000 {
                idle.pop_front();
            }
        }
    };
    let logins = async {
        let mut refused = Vec::new();
        let mut rounds = 0;
        while begun.elapsed() < SLOW * 5 || rounds < 3 {
            // One device has an address of its own, the other shares one of the flood.
            let [own, shared] = [Ipv4Addr::new(127, 0, 5, 1), Ipv4Addr::from_bits(0x7f00_0401)];
            let (name, other) = (format!("own-{rounds}"), format!("shared-{rounds}"));
            let (a, b) = tokio::join!(
                logs_in(&standalone, own, &name, [Duration::ZERO, SLOW]),
                logs_in(&standalone, shared, &other, [Duration::ZERO, SLOW]),
            );
            refused.extend([(a, name), (b, other)].into_iter().filter(|(is_in, _)| !is_in));
            rounds += 1;
        }
        refused
    };
    let ((), refused) = tokio::join!(flood, logins);
    assert!(refused.is_empty(), "{refused:?}");
    assert!(standalone.metric("push_broker_connections_displaced_total").await > 1_000);
}
