/* Puts the time of day ahead by PUSH_TEST_CLOCK_AHEAD_MS milliseconds: see mod.rs.
 *
 * Only the clock that Rust's SystemTime reads is changed. The monotonic one, by which programs
 * wait, stays as it is, as on a machine whose clock is wrong. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead_ms;

__attribute__((constructor)) static void read_setting(void) {
    const char *text = getenv("PUSH_TEST_CLOCK_AHEAD_MS");
    ahead_ms = text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME) {
        time->tv_sec += ahead_ms / 1000;
        time->tv_nsec += ahead_ms % 1000 * 1000000;
        if (time->tv_nsec >= 1000000000) {
            time->tv_sec += 1;
            time->tv_nsec -= 1000000000;
        }
    }
    return failed;
}
