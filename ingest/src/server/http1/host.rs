//! The values that a `Host` header may have (RFC 9110 section 7.2, RFC 3986 section 3.2).

/// The bytes that `reg-name` has without an escape: `unreserved` and `sub-delims`. A table, because each
/// byte of `Host` is looked up with every request.
static NAME: [bool; 256] = alphanumeric_and(b"-._~!$&'()*+,;=");

/// Returns the set of all ASCII letters and digits, and these bytes.
const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < set.len() {
        set[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut other = 0;
    while other < others.len() {
        set[others[other] as usize] = true;
        other += 1;
    }
    set
}

/// Returns true if this is `uri-host [ ":" port ]`. It may be empty, for a target without an authority.
pub(super) fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|&b| b == b']') else { return false };
            let is_address =
                rest[..end].iter().all(|&b| b.is_ascii_hexdigit() || b":.".contains(&b));
            if end == 0 || !is_address {
                return false;
            }
            (&[][..], &rest[end + 1..])
        }
        _ => value.split_at(value.iter().position(|&b| b == b':').unwrap_or(value.len())),
    };
    is_registered_name(host) && (port.is_empty() || port[0] == b':' && is_number(&port[1..]))
}

/// `reg-name`, which every IPv4 address is, too.
fn is_registered_name(mut name: &[u8]) -> bool {
    loop {
        name = match name {
            [] => return true,
            [b'%', a, b, rest @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => rest,
            [b, rest @ ..] if NAME[usize::from(*b)] => rest,
            _ => return false,
        }
    }
}

fn is_number(digits: &[u8]) -> bool {
    digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for host in [
            "",
            "push",
            "push:8080",
            "push:",
            "push.example.",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:8080",
            "xn--fiq228c.example",
            "a%20b",
            "a_b",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "a b",
            "a,b c",
            "user@push",
            "push/",
            "push?",
            "push#x",
            "push:80:80",
            "push:x",
            "a%2",
            "[::1",
            "[]",
            "[x]",
            "[::1]x",
            "::1",
            "\u{e9}",
            "a\tb",
            "http://push",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
