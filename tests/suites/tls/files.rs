//! Certificate files: the usual forms are read, and what cannot be used is named.

use std::{fs, path::Path, process::Command};

use push_tests::certificates::Authority;
use push_tls::{
    client::{ClientFiles, ClientTls, Identity},
    server::TlsSettings,
};

use crate::tls::support::settings;

/// The error of a listener with these files, with its cause.
fn wrong(certificate: &Path, key: &Path) -> String {
    let settings = TlsSettings { certificate: certificate.to_owned(), key: key.to_owned() };
    let error = settings.check().unwrap_err();
    match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn keys_of_every_usual_form_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let subject = ["-x509", "-subj", "/CN=localhost", "-days", "2"];
    for (form, make) in [
        (
            "PRIVATE KEY",
            ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"].as_slice(),
        ),
        ("PRIVATE KEY", &["genpkey", "-algorithm", "ED25519"]),
        ("EC PRIVATE KEY", &["ecparam", "-genkey", "-noout", "-name", "prime256v1"]),
        ("RSA PRIVATE KEY", &["genrsa", "-traditional"]),
    ] {
        let (key, certificate) = (file("key.pem"), file("certificate.pem"));
        let mut arguments = vec![make[0], "-out", &key];
        arguments.extend(&make[1..]);
        openssl(&arguments);
        let text = fs::read_to_string(&key).unwrap();
        assert!(text.contains(&format!("BEGIN {form}")), "{text}");
        let new = ["req", "-new", "-key", &key, "-out", &certificate];
        openssl(&[new.as_slice(), &subject].concat());
        let settings = TlsSettings { certificate: certificate.into(), key: key.into() };
        settings.check().unwrap_or_else(|error| panic!("{make:?}: {error:?}"));
    }
}

#[test]
fn each_file_that_cannot_be_used_is_named_with_the_reason() {
    let authority = Authority::new();
    let (good, other) = (authority.local_server(), authority.local_server());
    settings(&good).check().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let missing = folder.path().join("missing.pem");
    let text = wrong(&missing, &good.key);
    assert!(text.contains("missing.pem cannot be read"), "{text}");
    let text = wrong(&good.certificate, &good.certificate);
    assert!(text.contains("has no private key"), "{text}");
    let text = wrong(&good.key, &good.key);
    assert!(text.contains("has no certificate"), "{text}");
    let text = wrong(&good.certificate, &other.key);
    assert!(text.contains("does not belong to the first certificate"), "{text}");
    let half = file("half.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n");
    let text = wrong(&half, &good.key);
    assert!(text.contains("half.pem is not valid PEM"), "{text}");
    let garbage =
        file("garbage.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    let text = wrong(&garbage, &good.key);
    assert!(text.contains("the certificate in") && text.contains("garbage.pem"), "{text}");
    let key = file("bad-key.pem", "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n");
    let text = wrong(&good.certificate, &key);
    assert!(text.contains("the private key in") && text.contains("bad-key.pem"), "{text}");
    let large = file("large.pem", &"x".repeat(2 << 20));
    let text = wrong(&large, &good.key);
    assert!(text.contains("large.pem is larger than"), "{text}");
    let encrypted = folder.path().join("encrypted.pem");
    let (key, out) = (good.key.to_str().unwrap(), encrypted.to_str().unwrap());
    openssl(&["pkcs8", "-topk8", "-in", key, "-out", out, "-passout", "pass:secret"]);
    let text = wrong(&good.certificate, &encrypted);
    assert!(text.contains("encrypted.pem is encrypted"), "{text}");
}

#[test]
fn the_files_of_a_client_are_checked_like_those_of_a_listener() {
    let authority = Authority::new();
    let (one, other) = (authority.local_server(), authority.local_server());
    let wrong = |files| ClientTls::new(files).unwrap_err().to_string();
    let text = wrong(ClientFiles { authorities: Some(one.key.clone()), identity: None });
    assert!(text.contains("has no certificate"), "{text}");
    let identity = Identity { certificate: one.certificate, key: other.key };
    let text = wrong(ClientFiles { authorities: None, identity: Some(identity) });
    assert!(text.contains("does not belong"), "{text}");
}

#[test]
fn no_text_shows_what_is_in_a_key_file() {
    let authority = Authority::new();
    let (one, other) = (authority.local_server(), authority.local_server());
    let secret = fs::read_to_string(&other.key).unwrap();
    let line = secret.lines().nth(1).unwrap();
    let damaged = secret.replace("-----END", "----END");
    fs::write(&other.key, damaged).unwrap();
    let text = wrong(&one.certificate, &other.key);
    assert!(!text.contains(line), "{text}");
    let settings = settings(&one);
    assert!(!format!("{settings:?}").contains(line));
}

/// The shell commands of a page's section.
fn commands(page: &str, heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(heading).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_commands_of_the_page_on_tls_make_certificates_that_fit() {
    let folder = tempfile::tempdir().unwrap();
    let script = commands("docs/how-to/tls.md", "## Make certificates of your own\n");
    let mut shell = Command::new("bash");
    let output = shell.args(["-euc", &script]).current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = |name: &str| folder.path().join(name);
    TlsSettings { certificate: file("server.pem"), key: file("server-key.pem") }.check().unwrap();
    let identity = Identity { certificate: file("client.pem"), key: file("client-key.pem") };
    let files = ClientFiles { authorities: Some(file("ca.pem")), identity: Some(identity) };
    ClientTls::new(files).unwrap();
    // OpenSSL checks a certificate for each use as servers do.
    for (use_of, certificate) in [("sslserver", "server.pem"), ("sslclient", "client.pem")] {
        let (ca, certificate) = (file("ca.pem"), file(certificate));
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        openssl(&["verify", "-purpose", use_of, "-CAfile", &path(&ca), &path(&certificate)]);
    }
}
