/* Error codes and the error slot of the calling thread.
   A fallible function returns `err`: 0 or one of the codes below, and leaves its detail text in the
   slot with fail(). The slot belongs to the thread: read it before calling anything else fallible;
   code that hands work to another thread copies the slot over (err_save / err_restore). Codes map
   to HTTP status in one table (http/problem.c). */
#ifndef BASE_ERR_H
#define BASE_ERR_H

typedef int err;

enum {
    E_OK = 0,
    E_INVALID,       /* 400: the request says something we cannot accept */
    E_UNAUTHORIZED,  /* 401 */
    E_FORBIDDEN,     /* 403 */
    E_NOT_FOUND,     /* 404 */
    E_METHOD,        /* 405 */
    E_CONFLICT,      /* 409 */
    E_TOO_LARGE,     /* 413 */
    E_MEDIA_TYPE,    /* 415 */
    E_RANGE,         /* 416: of a Range header nothing is there */
    E_UNPROCESSABLE, /* 422: an idempotency key used again with another body */
    E_QUOTA,         /* 429 */
    E_INTERNAL,      /* 500 */
    E_UNAVAILABLE,   /* 503: a part of the service is down or a host cannot do it */
    E_IO,            /* 500: disk or socket trouble; detail carries the errno text */
    E_TIMEOUT,       /* 504 */
    E_CLOSED,        /* the peer went away; seldom seen by clients */
    E_COUNT
};

#define ERR_CODE_MAX 48
#define ERR_TEXT_MAX 512

/* The slot, by value, for carrying an error across threads. */
struct err_slot {
    err e;
    char code[ERR_CODE_MAX]; /* R10 `code`: a stable snake_case word; "" means the default of `e` */
    char text[ERR_TEXT_MAX];
};

/* Sets the slot and returns `e`, so that `return fail(E_INVALID, "…")` reads well. */
err fail(err e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with an R10 code word of its own. */
err fail_as(err e, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* E_IO with ": strerror(errno)" appended. Call while errno is still that of the failed call. */
err fail_errno(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

const char *err_text(void);
const char *err_code(void); /* never NULL: the slot's code word or the default of its error */
const char *err_code_of(err e);
void err_save(struct err_slot *out);
err err_restore(const struct err_slot *slot);

#ifdef __clang_analyzer__ /* it cannot see that these never return 0 */
#define fail(e, ...) (fail(e, __VA_ARGS__), (err)(e))
#define fail_as(e, ...) (fail_as(e, __VA_ARGS__), (err)(e))
#define fail_errno(...) (fail_errno(__VA_ARGS__), (err)E_IO)
#endif

/* Returns from the calling function on error. The only control-flow macro of the project. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        err try_err = (expr);                                                                      \
        if (try_err)                                                                               \
            return try_err;                                                                        \
    } while (0)

#endif
