//! The configuration reference is that of the programs.

use std::process::Command;

use push_tests::service::built;

use crate::docs::pages::page;

/// The page that is compared, and the command that writes it.
const PAGE: &str = "docs/reference/configuration.md";
const RENEW: &str = "cargo run -p pushctl -- reference > docs/reference/configuration.md";

#[test]
fn the_configuration_reference_is_that_of_the_programs() {
    let output = Command::new(built("pushctl")).arg("reference").output().expect("pushctl");
    let made = String::from_utf8(output.stdout).expect("text");
    let kept = page(PAGE).text;
    let differs = made.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(
        made.trim_end() == kept.trim_end(),
        "{PAGE} is not what the programs say: renew it with\n  {RENEW}\nThe first difference:\n{differs:#?}"
    );
    assert!(made.lines().filter(|line| line.starts_with("| `--")).count() > 60, "{made}");
    assert!(kept.contains(RENEW), "the page says how it is renewed");
}
