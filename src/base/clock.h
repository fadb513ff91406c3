/* The one source of time. Code takes a `struct clock *`; tests pass a fake one and move it. Units
   are in the names. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CLOCK_AHEAD_VARIABLE "PI_MANAGED_TEST_CLOCK_AHEAD_MS"

struct clock;

/* In sanitizer builds, which only tests run, its wall time is ahead by
   PI_MANAGED_TEST_CLOCK_AHEAD_MS of the environment: tests choose the time of day at which a
   service starts. */
const struct clock *clock_real(void);
/* A clock that stands still until told otherwise; free with clock_fake_free. */
struct clock *clock_fake_new(int64_t wall_ms);
void clock_fake_free(struct clock *c);
void clock_fake_advance_ms(struct clock *c, int64_t ms);

int64_t clock_wall_ms(const struct clock *c);      /* since the Unix epoch */
int64_t clock_monotonic_ms(const struct clock *c); /* for durations and timeouts */

#define CLOCK_TEXT_MAX 25
/* R16: RFC 3339, UTC, milliseconds: 2026-11-30T12:00:00.000Z. `out` has CLOCK_TEXT_MAX bytes.
   Years 0000 to 9999; returns out. */
const char *clock_format(int64_t wall_ms, char *out);
bool clock_parse(const char *text, int64_t *out_ms); /* accepts exactly what clock_format writes */

#endif
