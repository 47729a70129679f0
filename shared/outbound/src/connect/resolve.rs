//! The addresses of a host, as the resolver gives them. They are looked up once for a connection;
//! what is checked is what is connected to.

use std::{fmt, io, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::{
    error::{Step, Unreachable, Why},
    origin::Owner,
};

/// Lookups for tenants at a time. A lookup keeps a thread until the name servers answer, and a tenant
/// may name a host whose servers never do. Tokio has 512 threads for such work.
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
    tenants: Arc<Semaphore>,
    operator: Arc<Semaphore>,
}

impl Lookups {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Self {
        let tenants = Arc::new(Semaphore::new(TENANT_LOOKUPS));
        Self { resolver, tenants, operator: Arc::new(Semaphore::new(OPERATOR_LOOKUPS)) }
    }

    /// Looks the name up; the caller bounds the time. A lookup that its caller gave up goes on, and
    /// counts, until the resolver answers.
    pub(super) async fn addresses(
        &self,
        name: &str,
        owner: Owner,
    ) -> Result<Vec<IpAddr>, Unreachable> {
        let permits = match owner {
            Owner::Operator => &self.operator,
            Owner::Tenant => &self.tenants,
        };
        let no_address = || Step::Resolve.failed(Why::NoAddress);
        let permit = Arc::clone(permits).acquire_owned().await.map_err(|_| no_address())?;
        let (resolver, name) = (Arc::clone(&self.resolver), name.to_owned());
        let lookup = tokio::spawn(async move {
            let found = resolver.resolve(&name).await;
            drop(permit);
            found
        });
        let mut found = lookup.await.ok().and_then(Result::ok).ok_or_else(no_address)?;
        found.truncate(ADDRESSES_READ);
        Ok(found)
    }
}
