//! Inputs for the fuzz tests, which are in the crates whose code they try, each in a module `fuzz`.
//!
//! An input is one of the corpus, or is made of some by mutation: bytes changed, inserted, removed and
//! repeated, parts of two inputs put together, tokens of the format put in. `corpus/NAME/` holds one
//! input a file. An input that once broke something is added there, and is tried in every run.
//!
//! The usual run has proptest make them, without another tool, and reduces an input that fails to a
//! small one. It tries a few thousand of each kind; `PUSH_FUZZ_CASES=1000000 ./tests/run fuzz::` tries as
//! many as it says.
//!
//! `./tests/run coverage` has libFuzzer make them (the feature `libfuzzer`), as cargo-fuzz does: it goes on
//! from inputs that reach parts of the code that no other has reached. The code is instrumented for it,
//! with the stable toolchain, and every fuzz test of the crates is a target, because all of them call [`fuzz`].

#![allow(clippy::expect_used, reason = "a test ends where its corpus cannot be read")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, TestCaseResult, TestRunner},
};

/// Inputs that are tried in a usual run.
const CASES: u32 = 2000;
/// The variable that says how many are tried instead.
const CASES_VARIABLE: &str = "PUSH_FUZZ_CASES";
/// The variable with the arguments of libFuzzer, if it is to make them.
#[cfg(feature = "libfuzzer")]
const LIBFUZZER_VARIABLE: &str = "PUSH_LIBFUZZER";
/// The most mutations of one input.
const MUTATIONS: usize = 6;
/// The most bytes that one mutation inserts or repeats.
const INSERTED: usize = 24;

/// One change of an input.
#[derive(Debug, Clone)]
enum Mutation {
    Change(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    /// Goes on with the rest of another input.
    Splice(Index, Vec<u8>, Index),
    Cut(Index),
}

/// Tries every input of the corpus, and many that are made of them. `tokens` are texts that mean
/// something in the format.
pub fn fuzz(
    corpus: &str,
    tokens: &'static [&'static str],
    check: impl Fn(&[u8]) -> TestCaseResult,
) {
    try_all(corpus, tokens, &check);
}

/// Does what [`fuzz`] says. It is not generic, so that proptest's runner is compiled here once and not
/// again in every crate for each of its tests.
fn try_all(corpus: &str, tokens: &'static [&'static str], check: &dyn Fn(&[u8]) -> TestCaseResult) {
    #[cfg(feature = "libfuzzer")]
    if let Ok(arguments) = std::env::var(LIBFUZZER_VARIABLE) {
        return guided(&arguments, corpus, tokens, check);
    }
    let inputs = read(corpus);
    for (name, input) in &inputs {
        if let Err(error) = check(input) {
            panic!("{corpus}/{name}: {error}");
        }
    }
    let cases = std::env::var(CASES_VARIABLE).ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().expect("PUSH_FUZZ_CASES is a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let inputs = inputs.into_iter().map(|(_, input)| input).collect();
    TestRunner::new(config)
        .run(&mutated(inputs, tokens), |input| check(&input))
        .unwrap_or_else(|error| panic!("{corpus}: {error}"));
}

/// Has libFuzzer make the inputs, with these arguments and these tokens, and the corpus to begin with.
#[cfg(feature = "libfuzzer")]
fn guided(arguments: &str, corpus: &str, tokens: &[&str], check: &dyn Fn(&[u8]) -> TestCaseResult) {
    let escaped =
        |token: &&str| token.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let lines: Vec<String> =
        tokens.iter().map(|token| format!("\"{}\"\n", escaped(token))).collect();
    let dictionary = std::env::temp_dir().join(format!("{corpus}-{}.dict", std::process::id()));
    fs::write(&dictionary, lines.concat()).expect("a file for the tokens");
    let mut arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    arguments.push(format!("-dict={}", dictionary.display()));
    arguments.push(folder(corpus).display().to_string());
    let check = |input: &[u8]| {
        if let Err(error) = check(input) {
            panic!("{corpus}: {error}");
        }
    };
    let ended = push_libfuzzer::run(&arguments, &check);
    ended.expect("arguments that libFuzzer knows");
}

fn folder(corpus: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(corpus)
}

/// The corpus, by the names of its files.
fn read(corpus: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder(corpus)).expect("a corpus of this name");
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("a file");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a file"))
        })
        .collect();
    assert!(!inputs.is_empty(), "the corpus {corpus} is empty");
    inputs.sort();
    inputs
}

fn mutated(inputs: Vec<Vec<u8>>, tokens: &'static [&'static str]) -> BoxedStrategy<Vec<u8>> {
    let inserted = prop_oneof![
        vec(any::<u8>(), 1..INSERTED),
        select(tokens).prop_map(|token| token.as_bytes().to_vec()),
    ];
    let mutation = prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Change(at, byte)),
        3 => (any::<Index>(), inserted).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        2 => (any::<Index>(), 1..INSERTED).prop_map(|(at, count)| Mutation::Remove(at, count)),
        1 => (any::<Index>(), 1..INSERTED, 1usize..64)
            .prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
        1 => (any::<Index>(), select(inputs.clone()), any::<Index>())
            .prop_map(|(at, other, from)| Mutation::Splice(at, other, from)),
        1 => any::<Index>().prop_map(Mutation::Cut),
    ];
    let input = prop_oneof![9 => select(inputs), 1 => vec(any::<u8>(), 0..200)];
    (input, vec(mutation, 0..=MUTATIONS))
        .prop_map(|(mut input, mutations)| {
            mutations.into_iter().for_each(|mutation| mutation.apply(&mut input));
            input
        })
        .boxed()
}

impl Mutation {
    fn apply(self, input: &mut Vec<u8>) {
        match self {
            Self::Change(at, byte) => {
                if let Some(changed) = at.get_mut_of(input) {
                    *changed = byte;
                }
            }
            Self::Insert(at, bytes) => {
                let at = at.index(input.len() + 1);
                input.splice(at..at, bytes);
            }
            Self::Remove(at, count) => {
                let at = at.index(input.len() + 1);
                input.drain(at..input.len().min(at + count));
            }
            Self::Repeat(at, length, times) => {
                let at = at.index(input.len() + 1);
                let part = input.get(at..input.len().min(at + length)).unwrap_or_default();
                let part = part.repeat(times);
                input.splice(at..at, part);
            }
            Self::Splice(at, other, from) => {
                input.truncate(at.index(input.len() + 1));
                input.extend(other.get(from.index(other.len() + 1)..).unwrap_or_default());
            }
            Self::Cut(at) => input.truncate(at.index(input.len() + 1)),
        }
    }
}

/// [`Index`] panics on an empty slice.
trait GetMut {
    fn get_mut_of<'a>(&self, input: &'a mut [u8]) -> Option<&'a mut u8>;
}

impl GetMut for Index {
    fn get_mut_of<'a>(&self, input: &'a mut [u8]) -> Option<&'a mut u8> {
        if input.is_empty() { None } else { Some(self.get_mut(input)) }
    }
}
