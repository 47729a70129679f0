//! The addresses of a host, as the resolver gives them. They are looked up once for a connection;
//! what is checked is what is connected to.

use std::{fmt, io, net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use crate::{
    error::{Step, Unreachable, Why},
    origin::{Owner, PoolKey},
    permits::Permits,
};

/// Lookups for tenants at a time. A lookup keeps a thread until the name servers answer, and a tenant
/// may name a host whose servers never do. Tokio has 512 threads for such work. A key whose lookups all
/// hang ends up with half of them ([`Permits`]).
const TENANT_LOOKUPS: usize = 128;

/// Lookups of the operator's hosts at a time, apart from those of tenants, which cannot hold these up.
const OPERATOR_LOOKUPS: usize = 8;

/// The most addresses of a host that are looked at; a host with more is served by any of these.
const ADDRESSES_READ: usize = 64;

/// Finds the addresses of a host.
#[async_trait]
pub trait Resolve: fmt::Debug + Send + Sync + 'static {
    /// Returns the addresses of the name, the preferred one first.
    ///
    /// # Errors
    /// Fails if the name has none, or no name server answers.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.take(ADDRESSES_READ).map(|address| address.ip()).collect())
    }
}

/// A resolver whose lookups are bounded in number.
#[derive(Debug)]
pub(super) struct Lookups {
    resolver: Arc<dyn Resolve>,
    tenants: Arc<Permits>,
    operator: Arc<Permits>,
}

impl Lookups {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Self {
        let (tenants, operator) = (Permits::new(TENANT_LOOKUPS), Permits::new(OPERATOR_LOOKUPS));
        Self { resolver, tenants, operator }
    }

    /// Looks the name up within this time. A lookup that was given up goes on, and counts, until the
    /// resolver answers.
    pub(super) async fn addresses(
        &self,
        name: &str,
        owner: Owner,
        key: &PoolKey,
        limit: Duration,
    ) -> Result<Vec<IpAddr>, Unreachable> {
        let permits = match owner {
            Owner::Operator => &self.operator,
            Owner::Tenant => &self.tenants,
        };
        let (until, late) = (Instant::now() + limit, || Step::Resolve.failed(Why::Late(limit)));
        let permit = permits.take(key, until).await.ok_or_else(late)?;
        let (resolver, name) = (Arc::clone(&self.resolver), name.to_owned());
        let lookup = tokio::spawn(async move {
            let found = resolver.resolve(&name).await;
            drop(permit);
            found
        });
        let found = timeout_at(until, lookup).await.map_err(|_| late())?;
        let found = found.ok().and_then(Result::ok);
        let mut found = found.ok_or_else(|| Step::Resolve.failed(Why::NoAddress))?;
        found.truncate(ADDRESSES_READ);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name servers that are silent for some names.
    #[derive(Debug)]
    struct Silent;

    #[async_trait]
    impl Resolve for Silent {
        async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            if name.starts_with("silent") {
                std::future::pending::<()>().await;
            }
            Ok(vec![IpAddr::from([192, 0, 2, 1])])
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_whose_name_servers_are_silent_leaves_lookups_to_others() {
        let (lookups, limit) = (Lookups::new(Arc::new(Silent)), Duration::from_secs(5));
        for owner in [Owner::Tenant, Owner::Operator] {
            let [greedy, other] = ["greedy", "other"].map(|key| PoolKey(key.to_owned()));
            let silent = (0..2 * TENANT_LOOKUPS)
                .map(|_| lookups.addresses("silent.example", owner, &greedy, limit));
            for lookup in futures::future::join_all(silent).await {
                assert_eq!(lookup, Err(Step::Resolve.failed(Why::Late(limit))));
            }
            let found = lookups.addresses("provider.example", owner, &other, limit).await;
            assert_eq!(found.map(|found| found.len()), Ok(1), "{owner:?}");
            let again = lookups.addresses("provider.example", owner, &greedy, limit).await;
            assert_eq!(again, Err(Step::Resolve.failed(Why::Late(limit))), "its lookups go on");
        }
    }
}
