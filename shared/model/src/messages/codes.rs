//! The public codes of the push endpoint and what they mean; docs/reference/http-api.md has the table.
//!
//! `ingest` decides which HTTP status goes with a code.

/// A public error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushCode {
    /// 21001
    AppIdMissing,
    /// 21002
    AppIdIllegal,
    /// 21003
    AppSecretMissing,
    /// 21004
    AppSecretIllegal,
    /// 21005
    MessageIllegal,
    /// 21006
    ClientIdTooMuch,
    /// 21007
    AppDisabled,
    /// 22001
    TooFrequent,
}

impl PushCode {
    /// Every code.
    pub const ALL: [Self; 8] = [
        Self::AppIdMissing,
        Self::AppIdIllegal,
        Self::AppSecretMissing,
        Self::AppSecretIllegal,
        Self::MessageIllegal,
        Self::ClientIdTooMuch,
        Self::AppDisabled,
        Self::TooFrequent,
    ];

    /// The number in `status`.
    pub const fn number(self) -> u32 {
        match self {
            Self::AppIdMissing => 21001,
            Self::AppIdIllegal => 21002,
            Self::AppSecretMissing => 21003,
            Self::AppSecretIllegal => 21004,
            Self::MessageIllegal => 21005,
            Self::ClientIdTooMuch => 21006,
            Self::AppDisabled => 21007,
            Self::TooFrequent => 22001,
        }
    }

    /// The text that the error message begins with.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::AppIdMissing => "App ID missing",
            Self::AppIdIllegal => "App ID illegal",
            Self::AppSecretMissing => "App Secret missing",
            Self::AppSecretIllegal => "App Secret illegal",
            Self::MessageIllegal => "Message illegal",
            Self::ClientIdTooMuch => "Client ID too much",
            Self::AppDisabled => "App push SDK disabled",
            Self::TooFrequent => "Too frequent",
        }
    }
}
