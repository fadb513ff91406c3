#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *role_name = "pi-managed";
static enum log_format log_as = LOG_TEXT;
static enum log_level log_least = LOG_INFO;
static _Thread_local char bound_request[ID_MAX], bound_session[ID_MAX];
static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(const char *role, enum log_format format, enum log_level least)
{
    role_name = role;
    log_as = format;
    log_least = least;
}

void log_bind(const char *request_id, const char *session_id)
{
    snprintf(bound_request, sizeof bound_request, "%s", request_id ? request_id : "");
    snprintf(bound_session, sizeof bound_session, "%s", session_id ? session_id : "");
}

static void add_json_string(struct buf *b, struct str s)
{
    bool valid = str_is_utf8(s);
    buf_add_char(b, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !valid))
            buf_printf(b, "\\u%04x", c);
        else
            buf_add_char(b, (char)c);
    }
    buf_add_char(b, '"');
}

static void add_json_field(struct buf *b, const char *name, const char *value)
{
    buf_printf(b, ",\"%s\":", name);
    add_json_string(b, str_of(value));
}

static void write_line(enum log_level level, const char *fmt, va_list ap)
{
    AUTO_BUF text = {0};
    buf_vprintf(&text, fmt, ap);
    char at[CLOCK_TEXT_MAX];
    clock_format(clock_wall_ms(clock_real()), at);
    AUTO_BUF line = {0};
    if (log_as == LOG_JSON) {
        buf_printf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"role\":\"%s\"", at,
                   level_names[level], role_name);
        if (bound_request[0])
            add_json_field(&line, "requestId", bound_request);
        if (bound_session[0])
            add_json_field(&line, "sessionId", bound_session);
        add_json_field(&line, "msg", text.p);
        buf_add_c(&line, "}\n");
    } else {
        buf_printf(&line, "%.8s %-5s %-7s ", at + 11, level_names[level], role_name);
        for (size_t i = 0; i < text.n; i++) /* a log line is one line, whatever a client sent */
            buf_add_char(&line, (char)((unsigned char)text.p[i] < 0x20 ? ' ' : text.p[i]));
        if (bound_session[0])
            buf_printf(&line, " (%s)", bound_session);
        buf_add_char(&line, '\n');
    }
    struct err_slot saved;
    err_save(&saved);
    if (fd_write_full(STDERR_FILENO, line.p, line.n))
        err_restore(&saved); /* nobody is left to tell */
}

#define LOG_BODY(level)                                                                            \
    do {                                                                                           \
        if ((level) < log_least)                                                                   \
            return;                                                                                \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        write_line(level, fmt, ap);                                                                \
        va_end(ap);                                                                                \
    } while (0)

void log_debug(const char *fmt, ...)
{
    LOG_BODY(LOG_DEBUG);
}

void log_info(const char *fmt, ...)
{
    LOG_BODY(LOG_INFO);
}

void log_warn(const char *fmt, ...)
{
    LOG_BODY(LOG_WARN);
}

void log_error(const char *fmt, ...)
{
    LOG_BODY(LOG_ERROR);
}

void log_fatal(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(LOG_ERROR, fmt, ap);
    va_end(ap);
    exit(1);
}
