//! Which addresses a tenant's request may reach, however they are written.

mod lists;

use std::net::IpAddr;

use push_outbound::{
    Origin, Owner, Permission,
    addresses::{AllowError, is_public},
    origin::{Host, OriginError},
};

use self::lists::{PUBLIC, UNUSABLE};
pub(crate) use self::lists::{REFUSED, SPELLINGS};

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
    assert_eq!(Permission::parse(""), Ok(Permission::default()));
    for wrong in ["10.0.0.0/33", "localhost", "10.0.0", "10.0.0.0/8 fd00::/8", "https:10.0.0.1"] {
        assert_eq!(Permission::parse(wrong), Err(AllowError::NotANetwork(wrong.into())));
    }
    let many = vec!["10.0.0.0/8"; 65].join(",");
    assert_eq!(Permission::parse(&many), Err(AllowError::TooMany));
}

#[test]
fn only_a_network_that_is_allowed_with_http_is_reached_without_tls() {
    let allowed = Permission::parse("10.0.0.0/8, http:10.1.0.0/16,http:fd00:1::/32").unwrap();
    for text in ["10.1.2.3", "::ffff:10.1.2.3", "fd00:1::5"] {
        assert_eq!(allowed.permit_plain(ip(text)), Some(ip(text).to_canonical()), "{text}");
        assert_eq!(allowed.permit(ip(text)), Some(ip(text).to_canonical()), "with TLS as well");
    }
    for text in ["8.8.8.8", "10.2.0.1", "fd00:2::1", "2606:4700:4700::1111"] {
        assert_eq!(allowed.permit_plain(ip(text)), None, "{text}");
    }
    assert_eq!(allowed.permit(ip("10.2.0.1")), Some(ip("10.2.0.1")));
}
