#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef fail /* err.h helps the analyzer by macros of these names */
#undef fail_as
#undef fail_errno

static _Thread_local struct err_slot slot;

static const char *const default_codes[E_COUNT] = {
    [E_OK] = "ok",
    [E_INVALID] = "invalid_request",
    [E_UNAUTHORIZED] = "unauthorized",
    [E_FORBIDDEN] = "forbidden",
    [E_NOT_FOUND] = "not_found",
    [E_METHOD] = "method_not_allowed",
    [E_CONFLICT] = "conflict",
    [E_TOO_LARGE] = "too_large",
    [E_MEDIA_TYPE] = "unsupported_media_type",
    [E_RANGE] = "range_not_satisfiable",
    [E_UNPROCESSABLE] = "unprocessable",
    [E_QUOTA] = "quota_exceeded",
    [E_INTERNAL] = "internal",
    [E_UNAVAILABLE] = "unavailable",
    [E_IO] = "io_error",
    [E_TIMEOUT] = "timeout",
    [E_CLOSED] = "closed",
};

const char *err_code_of(err e)
{
    return e >= 0 && e < E_COUNT ? default_codes[e] : "internal";
}

/* Made aside first: the arguments may come from the slot (fail(e, "%s: %s", path, err_text())). */
static void set_slot(err e, const char *code, const char *fmt, va_list ap)
{
    struct err_slot next = {.e = e};
    snprintf(next.code, sizeof next.code, "%s", code);
    vsnprintf(next.text, sizeof next.text, fmt, ap);
    slot = next;
}

err fail(err e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_slot(e, "", fmt, ap);
    va_end(ap);
    return e;
}

err fail_as(err e, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_slot(e, code, fmt, ap);
    va_end(ap);
    return e;
}

err fail_errno(const char *fmt, ...)
{
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    set_slot(E_IO, "", fmt, ap);
    va_end(ap);
    size_t n = strlen(slot.text);
    snprintf(slot.text + n, sizeof slot.text - n, ": %s", strerror(saved));
    errno = saved;
    return E_IO;
}

const char *err_text(void)
{
    return slot.text;
}

const char *err_code(void)
{
    return slot.code[0] ? slot.code : err_code_of(slot.e);
}

void err_save(struct err_slot *out)
{
    *out = slot;
}

err err_restore(const struct err_slot *saved)
{
    slot = *saved;
    return slot.e;
}
