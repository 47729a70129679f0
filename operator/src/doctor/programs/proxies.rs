//! Proxies in front of a program that are missing from `--trusted-proxies`. All clients of such a proxy
//! count as one address, and share that address's limits.

use push_store::Finding;

const SUBJECT: &str = "trusted proxies";

/// The metrics that count claims of untrusted addresses, each with the claim.
const CLAIMS: [(&str, &str); 3] = [
    (
        r#"push_ingest_untrusted_proxies_total{claim="proxy_protocol"} "#,
        "connections with a PROXY header",
    ),
    (
        r#"push_ingest_untrusted_proxies_total{claim="x_forwarded_for"} "#,
        "requests with X-Forwarded-For",
    ),
    ("push_broker_untrusted_proxies_total ", "connections of devices with a PROXY header"),
];

/// Returns a finding if untrusted addresses named clients to this program.
pub(in crate::doctor) fn judge(url: &str, metrics: &str) -> Option<Finding> {
    let count = |name: &str| -> u64 {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let counted = CLAIMS.map(|(name, what)| (count(name), what));
    let seen: Vec<_> = counted
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!seen.is_empty()).then(|| {
        Finding::warning(
            SUBJECT,
            format!("{url} had {} from addresses that it does not trust", seen.join(" and ")),
            "if one of them is your proxy, name its network with --trusted-proxies: until then \
             all of its clients count as one address",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_is_not_trusted_is_a_warning_and_says_what_it_sent() {
        let metrics = |protocol, forwarded| {
            format!(
                "# TYPE x counter\n\
                 push_ingest_untrusted_proxies_total{{claim=\"proxy_protocol\"}} {protocol}\n\
                 push_ingest_untrusted_proxies_total{{claim=\"x_forwarded_for\"}} {forwarded}\n"
            )
        };
        assert_eq!(judge("http://a", &metrics(0, 0)), None);
        assert_eq!(judge("http://a", "# EOF\n"), None, "a worker has no such metric");
        let found = judge("http://a", &metrics(0, 7)).unwrap();
        assert!(found.detail.contains("had 7 requests with X-Forwarded-For from"), "{found:?}");
        assert!(found.remedy().unwrap().contains("--trusted-proxies"), "{found:?}");
        let broker = judge("http://b", "push_broker_untrusted_proxies_total 3\n").unwrap();
        assert!(broker.detail.contains("3 connections of devices"), "{broker:?}");
    }
}
