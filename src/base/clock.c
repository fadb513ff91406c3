#include "base/clock.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct clock {
    pthread_mutex_t lock; /* guards fake_ms */
    bool fake;
    int64_t fake_ms;
};

static const struct clock real = {.lock = PTHREAD_MUTEX_INITIALIZER};

const struct clock *clock_real(void)
{
    return &real;
}

struct clock *clock_fake_new(int64_t wall_ms)
{
    struct clock *c = mem_alloc(sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    c->fake = true;
    c->fake_ms = wall_ms;
    return c;
}

void clock_fake_free(struct clock *c)
{
    if (c == NULL)
        return;
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

void clock_fake_advance_ms(struct clock *c, int64_t ms)
{
    pthread_mutex_lock(&c->lock);
    c->fake_ms += ms;
    pthread_mutex_unlock(&c->lock);
}

static int64_t read_clock(const struct clock *c, clockid_t id)
{
    if (c->fake) {
        pthread_mutex_t *lock = (pthread_mutex_t *)&c->lock;
        pthread_mutex_lock(lock);
        int64_t ms = c->fake_ms;
        pthread_mutex_unlock(lock);
        return ms;
    }
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static int64_t ahead_ms;

__attribute__((constructor)) static void read_ahead(void)
{
    const char *text = getenv(CLOCK_AHEAD_VARIABLE);
    ahead_ms = text ? strtoll(text, NULL, 10) : 0;
}
#else
static const int64_t ahead_ms = 0;
#endif

int64_t clock_wall_ms(const struct clock *c)
{
    return read_clock(c, CLOCK_REALTIME) + (c->fake ? 0 : ahead_ms);
}

int64_t clock_monotonic_ms(const struct clock *c)
{
    return read_clock(c, CLOCK_MONOTONIC);
}

#define DAY_MS 86400000

static char *put_digits(char *at, int value, int count)
{
    for (int i = count; i-- > 0; value /= 10)
        at[i] = (char)('0' + value % 10);
    return at + count;
}

/* The civil date of a day since 1970-01-01, in years that begin in March: then leap days come last.
 */
static void civil_date(int64_t day, int *out_year, int *out_month, int *out_day)
{
    enum {
        ERA_DAYS = 146097,  /* 400 years */
        EPOCH_DAYS = 719468 /* from 0000-03-01 to 1970-01-01 */
    };
    day += EPOCH_DAYS;
    int64_t era = (day >= 0 ? day : day - (ERA_DAYS - 1)) / ERA_DAYS;
    int of_era = (int)(day - era * ERA_DAYS);
    int year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = of_era - (365 * year + year / 4 - year / 100);
    int month = (5 * of_year + 2) / 153; /* 0: March */
    *out_day = of_year - (153 * month + 2) / 5 + 1;
    *out_month = month < 10 ? month + 3 : month - 9;
    *out_year = (int)(era * 400) + year + (*out_month <= 2);
}

/* By hand: a page of a list has dozens, and gmtime_r and snprintf take longer than all else. */
const char *clock_format(int64_t wall_ms, char *out)
{
    int64_t days = wall_ms / DAY_MS;
    int ms = (int)(wall_ms % DAY_MS);
    if (ms < 0) {
        ms += DAY_MS;
        days--;
    }
    int year, month, day;
    civil_date(days, &year, &month, &day);
    char *at = put_digits(out, year, 4);
    *at = '-';
    at = put_digits(at + 1, month, 2);
    *at = '-';
    at = put_digits(at + 1, day, 2);
    *at = 'T';
    at = put_digits(at + 1, ms / 3600000, 2);
    *at = ':';
    at = put_digits(at + 1, ms / 60000 % 60, 2);
    *at = ':';
    at = put_digits(at + 1, ms / 1000 % 60, 2);
    *at = '.';
    at = put_digits(at + 1, ms % 1000, 3);
    *at = 'Z';
    at[1] = 0;
    return out;
}

bool clock_parse(const char *text, int64_t *out_ms)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    if (strlen(text) != sizeof shape - 1)
        return false;
    for (size_t i = 0; i < sizeof shape - 1; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        if (shape[i] == 'd' ? !digit : text[i] != shape[i])
            return false;
    }
    struct tm tm = {0};
    int ms = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms) != 7)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    int64_t result = (int64_t)timegm(&tm) * 1000 + ms;
    char again[CLOCK_TEXT_MAX]; /* refuses 31 February and the like */
    if (strcmp(clock_format(result, again), text) != 0)
        return false;
    *out_ms = result;
    return true;
}
