//! The errors of index and ledger, by what a caller can do about them.

/// The engine's own error, for the log.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a server refuses, as the code of its error says: what an operator has to do follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// It is a replica.
    NotMaster,
    /// It has fewer replicas than it was told to require.
    FewReplicas,
    /// It has no memory left.
    NoMemory,
    /// It could not save its data.
    NoDisk,
    /// It speaks another protocol, or wants TLS.
    OtherProtocol,
    /// It does not know the user or the password, or asks for one.
    Login,
    /// The user may not run a command, or not with these keys.
    Permission,
    /// It loads its data, or a script keeps it busy.
    Busy,
    /// A part of the cluster is not served, or is being moved.
    Cluster,
    /// Another version of this program wrote the stored data.
    OtherVersion,
}

/// The answer of a server that refuses. It is the source of an [`IndexError`].
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// The server's answer.
    pub text: String,
}

impl Refusal {
    /// The answer behind an error, if a server gave one.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.find_map(|cause| cause.downcast_ref())
    }
}

/// Why a store, the index or the ledger, did not do what it was asked. The kind of an error is read
/// from its code and from when it came, never from its text, and an unknown error is never taken
/// for corruption.
///
/// A call that takes several steps, as a registration of many devices does, may have done some of
/// them before one failed; such a call can be made again whatever the kind.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The server refuses for now, as a replica does, or a server without memory or disk space:
    /// nothing was done.
    #[error("the index refuses for now")]
    Refused(#[source] Source),
    /// No connection could be had: nothing was sent.
    #[error("the index cannot be reached")]
    Unreachable(#[source] Source),
    /// The answer was lost, is late, or is unknown to this program: what was asked may have
    /// happened.
    #[error("the index gave no answer that can be used; it may have done what it was asked")]
    Unsure(#[source] Source),
    /// The stored data cannot be what this program wrote: another try cannot help.
    #[error("the index holds something unreadable: {0}")]
    Corrupt(String),
}

impl IndexError {
    /// One word for errors of this kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::Unsure(_) => "unsure",
            Self::Corrupt(_) => "corrupt",
        }
    }

    /// Returns true if another try, later, can help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Unreachable(_) | Self::Unsure(_) => true,
            Self::Corrupt(_) => false,
        }
    }

    /// The same error for another call of the same group.
    pub fn duplicate(&self) -> Self {
        let text = |source: &Source| source.to_string().into();
        match self {
            Self::Refused(source) => Self::Refused(text(source)),
            Self::Unreachable(source) => Self::Unreachable(text(source)),
            Self::Unsure(source) => Self::Unsure(text(source)),
            Self::Corrupt(what) => Self::Corrupt(what.clone()),
        }
    }

    /// Returns true if the request may have been carried out nevertheless.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unsure(_))
    }
}
