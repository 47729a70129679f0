//! Which addresses a tenant's request may reach, however they are written.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::IpAddr;

use push_outbound::{
    Origin, Owner, Permission,
    addresses::{AllowError, is_public},
    origin::{Host, OriginError},
};

/// Addresses that lead to no server of the public internet.
const REFUSED: [&str; 72] = [
    // This network, and the unspecified address.
    "0.0.0.0",
    "0.0.0.1",
    "0.255.255.255",
    // Private.
    "10.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    // Shared.
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    // Loopback.
    "127.0.0.1",
    "127.0.0.53",
    "127.255.255.255",
    // Link-local, and the metadata of clouds.
    "169.254.0.1",
    "169.254.169.254",
    "169.254.255.255",
    "168.63.129.16",
    "192.0.0.192",
    // Protocol assignments, AS112, AMT, 6to4 relays.
    "192.0.0.1",
    "192.0.0.170",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.175.48.1",
    // Documentation.
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.255",
    // Benchmarking.
    "198.18.0.1",
    "198.19.255.255",
    // Multicast, reserved, broadcast.
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "254.1.2.3",
    "255.255.255.255",
    // Unspecified and loopback.
    "::",
    "::1",
    // IPv4-mapped, also those whose IPv4 address would be refused alone.
    "::ffff:127.0.0.1",
    "::ffff:10.1.2.3",
    "::ffff:169.254.169.254",
    "::ffff:0.0.0.0",
    "::ffff:7f00:1",
    // IPv4-compatible and IPv4-translated.
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:0:8.8.8.8",
    // NAT64.
    "64:ff9b::8.8.8.8",
    "64:ff9b::127.0.0.1",
    "64:ff9b:1::1",
    "64:ff9b:1:ffff::10.0.0.1",
    // Discard.
    "100::",
    "100::1",
    "100:0:0:1::1",
    // Teredo, benchmarking, ORCHID and their neighbours.
    "2001::1",
    "2001:0:7f00:1::",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:1ff:ffff::1",
    // Documentation.
    "2001:db8::1",
    "3fff::1",
    // 6to4, also of a private address.
    "2002:7f00:1::",
    "2002:808:808::1",
    // Segment routing, unique-local, link-local, site-local, multicast.
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fdff:ffff::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
];

/// Neighbours of these networks, and well-known servers.
const PUBLIC: [&str; 26] = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.0.3.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "203.0.112.255",
    "223.255.255.255",
    "::ffff:8.8.8.8",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200a",
];

/// URLs of the machine itself or its network in every notation, and the address that each means.
const SPELLINGS: [(&str, &str); 29] = [
    ("https://127.0.0.1/", "127.0.0.1"),
    ("https://127.0.0.1:8443/hook", "127.0.0.1"),
    ("https://127.0.0.1./", "127.0.0.1"),
    ("https://2130706433/", "127.0.0.1"),
    ("https://0x7f000001/", "127.0.0.1"),
    ("https://0x7F.0x0.0x0.0x1/", "127.0.0.1"),
    ("https://017700000001/", "127.0.0.1"),
    ("https://0177.0.0.01/", "127.0.0.1"),
    ("https://127.1/", "127.0.0.1"),
    ("https://127.0.1/", "127.0.0.1"),
    ("https://127.0x0.00.1/", "127.0.0.1"),
    ("https://%31%32%37.0.0.1/", "127.0.0.1"),
    ("https://①②⑦.0.0.1/", "127.0.0.1"),
    ("https://127。0。0。1/", "127.0.0.1"),
    ("https://0/", "0.0.0.0"),
    ("https://0.0.0.0/", "0.0.0.0"),
    ("https://10.1/", "10.0.0.1"),
    ("https://0xa9fea9fe/", "169.254.169.254"),
    ("https://2852039166/", "169.254.169.254"),
    ("https://0251.0376.0251.0376/", "169.254.169.254"),
    ("https://[::1]/", "::1"),
    ("https://[0:0:0:0:0:0:0:1]:443/", "::1"),
    ("https://[::]/", "::"),
    ("https://[::ffff:127.0.0.1]/", "127.0.0.1"),
    ("https://[::ffff:7f00:1]/", "127.0.0.1"),
    ("https://[0:0:0:0:0:FFFF:10.0.0.1]/", "10.0.0.1"),
    ("https://[64:ff9b::7f00:1]/", "64:ff9b::7f00:1"),
    ("https://[fe80::1]/", "fe80::1"),
    ("HTTPS:\\\\127.0.0.1\\hook", "127.0.0.1"),
];

/// URLs that name no server, and why.
const UNUSABLE: [(&str, OriginError); 23] = [
    ("", OriginError::NotAUrl),
    ("push.example.com/x", OriginError::NotAUrl),
    ("https://", OriginError::NotAUrl),
    ("https://256.256.256.256/", OriginError::NotAUrl),
    ("https://1.2.3.4.5/", OriginError::NotAUrl),
    ("https://4294967296/", OriginError::NotAUrl),
    ("https://[::1/", OriginError::NotAUrl),
    ("https://[fe80::1%25eth0]/", OriginError::NotAUrl),
    ("https://[fe80::1%eth0]/", OriginError::NotAUrl),
    ("https://[::127.0.0.1.]/", OriginError::NotAUrl),
    ("https://example.com:99999/", OriginError::NotAUrl),
    ("https://exa mple.com/", OriginError::NotAUrl),
    ("https://example.com:0/", OriginError::NoPort),
    ("https://a..b/", OriginError::NoHost),
    ("https://.example.com/", OriginError::NoHost),
    ("https://example.com../", OriginError::NoHost),
    ("https://exam'ple.com/", OriginError::NoHost),
    ("https://push.example.com@127.0.0.1/", OriginError::UserInfo),
    ("https://user:secret@push.example.com/", OriginError::UserInfo),
    ("https://:secret@push.example.com/", OriginError::UserInfo),
    ("ftp://push.example.com/", OriginError::NotHttp),
    ("file:///etc/passwd", OriginError::NotHttp),
    ("gopher://127.0.0.1:6379/_", OriginError::NotHttp),
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn host(url: &str) -> Result<Host, OriginError> {
    Origin::parse(url, Owner::Tenant).map(|origin| origin.host().clone())
}

#[test]
fn addresses_that_are_not_of_the_public_internet_are_refused() {
    let none = Permission::default();
    for text in REFUSED {
        assert!(!is_public(ip(text)), "{text}");
        assert_eq!(none.permit(ip(text)), None, "{text}");
    }
}

#[test]
fn addresses_of_the_public_internet_are_reached() {
    let none = Permission::default();
    for text in PUBLIC {
        assert!(is_public(ip(text)), "{text}");
        assert_eq!(none.permit(ip(text)), Some(ip(text).to_canonical()), "{text}");
    }
}

#[test]
fn each_notation_of_an_address_is_judged_as_the_address_that_it_means() {
    for (url, address) in SPELLINGS {
        assert_eq!(host(url), Ok(Host::Address(ip(address))), "{url}");
        assert!(!is_public(ip(address)), "{url}");
    }
}

#[test]
fn urls_that_name_no_server_or_another_scheme_are_refused_with_the_reason() {
    for (url, why) in UNUSABLE {
        assert_eq!(host(url), Err(why), "{url}");
    }
    let long = format!("https://push.example.com/{}", "a".repeat(5000));
    assert_eq!(host(&long), Err(OriginError::TooLong));
    let label = format!("https://{}.example.com/", "a".repeat(64));
    assert_eq!(host(&label), Err(OriginError::NoHost));
}

#[test]
fn a_name_has_one_form_however_it_is_written() {
    let origin = |url| Origin::parse(url, Owner::Tenant).unwrap();
    let usual = origin("https://push.example.com/");
    for url in [
        "https://PUSH.Example.COM/other?query",
        "https://push.example.com:443/",
        "https://push.example.com./",
        "https://push.example%2ecom/",
        "https://push。example。com/",
    ] {
        assert_eq!(origin(url), usual, "{url}");
    }
    assert_eq!(host("https://bücher.example/"), Ok(Host::Name("xn--bcher-kva.example".into())));
    assert_ne!(origin("https://push.example.com:8443/"), usual);
}

#[test]
fn the_operator_shares_no_connection_with_tenants() {
    let operator = Origin::parse("http://127.0.0.1:1234", Owner::Operator).unwrap();
    assert_eq!((operator.tls(), operator.port()), (false, 1234));
    for url in ["https://push.example.com", "http://push.example.com"] {
        assert_ne!(Origin::parse(url, Owner::Operator), Origin::parse(url, Owner::Tenant));
    }
}

#[test]
fn allowed_networks_open_what_is_in_them_and_nothing_else() {
    let allowed = Permission::parse(" 10.1.0.0/16, fd00:1::/32,127.0.0.1 ").unwrap();
    for text in ["10.1.2.3", "fd00:1::5", "127.0.0.1", "::ffff:10.1.2.3", "8.8.8.8"] {
        assert_eq!(allowed.permit(ip(text)), Some(ip(text).to_canonical()), "{text}");
    }
    for text in ["10.2.0.1", "fd00:2::1", "127.0.0.2", "::ffff:10.2.0.1", "::1"] {
        assert_eq!(allowed.permit(ip(text)), None, "{text}");
    }
    assert_eq!(allowed.permit_plain(ip("::ffff:10.1.2.3")), Some(ip("10.1.2.3")));
    for text in ["8.8.8.8", "10.2.0.1", "2606:4700:4700::1111"] {
        assert_eq!(allowed.permit_plain(ip(text)), None, "{text} is not reached without TLS");
    }
    assert_eq!(Permission::parse(""), Ok(Permission::default()));
    for wrong in ["10.0.0.0/33", "localhost", "10.0.0", "10.0.0.0/8 fd00::/8"] {
        assert_eq!(Permission::parse(wrong), Err(AllowError::NotANetwork(wrong.into())));
    }
    let many = vec!["10.0.0.0/8"; 65].join(",");
    assert_eq!(Permission::parse(&many), Err(AllowError::TooMany));
}
