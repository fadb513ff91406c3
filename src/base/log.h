/* Logging to standard error: one JSON object a line, or plain text on a terminal (--log-format).
   Only top layers log; library code returns errors. Never put a secret, a prompt or a tool output
   here. Any thread. The x forms of other daemons are not needed: errno text is part of err_text().
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level {
    LOG_DEBUG,
    LOG_INFO,
    LOG_WARN,
    LOG_ERROR
};

enum log_format {
    LOG_JSON,
    LOG_TEXT
};

/* Before any thread starts. `role` is a literal: "parent", "control"… */
void log_init(const char *role, enum log_format format, enum log_level least);
/* Ids that ride along in each line of this thread until changed; NULL clears. Copied. */
void log_bind(const char *request_id, const char *session_id);

void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Logs and ends the process with status 1. */
_Noreturn void log_fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
