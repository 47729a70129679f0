//! The allocator of programs that are linked with musl, which are the static ones: musl's own has one
//! lock for all threads. With glibc its allocator stays, which is what all figures were measured with.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
