/* src/hands/tool_read.c, tool_write.c, tool_edit.c, paths.c. The common cases are compared with Pi
   itself in tests/e2e/tools-diff.test.mjs; here is what takes two sides, or differs on purpose. */
#include "hands_support.h"

#include <pthread.h>

static void a_path_with_nul_is_refused(void **state)
{
    (void)state;
    put_file("a", STR("x"));
    static const char *const tools[] = {"read", "write", "edit"};
    for (size_t i = 0; i < 3; i++) {
        AUTO_RESULT r = call_tool(tools[i], "{\"path\":\"a\\u0000b\",\"content\":\"new\","
                                            "\"edits\":[{\"oldText\":\"x\",\"newText\":\"y\"}]}");
        assert_true(r.is_error);
        assert_has(r.text, "without null bytes");
    }
    AUTO_BUF kept = {0};
    get_file("a", &kept);
    assert_true(str_is(buf_str(&kept), "x"));
}

static void a_fifo_without_writer_reads_as_empty(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path_in("quiet"), 0600), 0);
    AUTO_RESULT r = call_tool("read", "{\"path\":\"quiet\"}");
    assert_false(r.is_error);
    assert_text(&r, "");
}

static void a_fifo_without_reader_refuses_the_write(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path_in("deaf"), 0600), 0);
    AUTO_RESULT r = call_tool("write", "{\"path\":\"deaf\",\"content\":\"x\"}");
    assert_true(r.is_error);
    assert_has(r.text, "ENXIO");
}

static void a_proc_file_without_size_is_read(void **state)
{
    (void)state;
    AUTO_RESULT r = call_tool("read", "{\"path\":\"/proc/self/status\"}");
    assert_has(r.text, "Name:\tpi-hands\n");
}

static void an_image_over_20_mib_is_left_out(void **state)
{
    (void)state;
    put_file("big.gif", STR("GIF89a"));
    assert_int_equal(truncate(path_in("big.gif"), (20 << 20) + 1), 0);
    AUTO_RESULT r = call_tool("read", "{\"path\":\"big.gif\"}");
    assert_text(&r, "Read image file [image/gif]\n[Image omitted: could not be resized below the "
                    "inline image size limit.]");
    assert_int_equal(json_array_size(json_object_get(r.json, "content")), 1);
}

static void an_image_of_20_mib_is_whole(void **state)
{
    (void)state;
    put_file("ok.gif", STR("GIF89a"));
    assert_int_equal(truncate(path_in("ok.gif"), 20 << 20), 0);
    AUTO_RESULT r = call_tool("read", "{\"path\":\"ok.gif\"}");
    const json_t *image = json_array_get(json_object_get(r.json, "content"), 1);
    assert_string_equal(json_get_c(image, "mimeType"), "image/gif");
    assert_int_equal(json_get_str(image, "data").n, ((20 << 20) + 2) / 3 * 4);
}

static void a_huge_file_is_read_in_part(void **state)
{
    (void)state;
    put_file("huge", STR("first\n"));
    assert_int_equal(truncate(path_in("huge"), 200 << 20), 0);
    AUTO_RESULT r = call_tool("read", "{\"path\":\"huge\",\"limit\":1}");
    assert_text(&r, "first\n\n[1 more lines in file. Use offset=2 to continue.]");
}

static void permission_errors_use_nodes_words(void **state)
{
    (void)state;
    if (geteuid() == 0)
        skip(); /* nothing is forbidden to root */
    put_file("secret", STR("x"));
    assert_int_equal(chmod(path_in("secret"), 0), 0);
    AUTO_RESULT r = call_tool("read", "{\"path\":\"secret\"}");
    assert_has(r.text, "EACCES: permission denied, access '");
    AUTO_RESULT w = call_tool("write", "{\"path\":\"secret\",\"content\":\"x\"}");
    assert_has(w.text, "EACCES: permission denied, open '");
}

struct editor {
    char input[160], key[32];
    pthread_t thread;
};

static void *run_edit(void *arg)
{
    struct editor *e = arg;
    struct hands_call call = {.key = e->key,
                              .tool = "edit",
                              .input = str_of(e->input),
                              .cwd = hands_folder,
                              .timeout_ms = 60000};
    AUTO_BUF out = {0};
    return (void *)(intptr_t)hands_call(hands_socket, &call, &out);
}

/* By two names, so that only the canonical path tells that it is one file. */
static void parallel_edits_of_one_file_all_land(void **state)
{
    (void)state;
    enum {
        N = 16
    };
    AUTO_BUF content = {0}, wanted = {0}, got = {0};
    for (int i = 0; i < N; i++) {
        buf_printf(&content, "line <%d>\n", i);
        buf_printf(&wanted, "line [%d]\n", i);
    }
    put_file("shared", buf_str(&content));
    assert_int_equal(symlink("shared", path_in("alias")), 0);
    struct editor editors[N];
    for (int i = 0; i < N; i++) {
        struct editor *e = &editors[i];
        snprintf(e->key, sizeof e->key, "parallel_%d", i);
        snprintf(e->input, sizeof e->input,
                 "{\"path\":\"%s\",\"edits\":[{\"oldText\":\"<%d>\",\"newText\":\"[%d]\"}]}",
                 i % 2 ? "shared" : "./alias", i, i);
        assert_int_equal(pthread_create(&e->thread, NULL, run_edit, e), 0);
    }
    for (int i = 0; i < N; i++) {
        void *failed;
        pthread_join(editors[i].thread, &failed);
        assert_null(failed);
        assert_int_equal(hands_ack(hands_socket, editors[i].key), 0);
    }
    get_file("shared", &got);
    assert_true(str_eq(buf_str(&got), buf_str(&wanted)));
}

static void edit_hands_over_both_texts(void **state)
{
    (void)state;
    put_file("e", STR("\xef\xbb\xbfone\r\ntwo\r\n"));
    AUTO_RESULT r =
        call_tool("edit", "{\"path\":\"e\",\"edits\":[{\"oldText\":\"two\",\"newText\":\"2\"}]}");
    assert_text(&r, "Successfully replaced 1 block(s) in e.");
    const json_t *details = json_object_get(r.json, "details");
    assert_string_equal(json_get_c(details, "oldText"), "one\ntwo\n");
    assert_string_equal(json_get_c(details, "newText"), "one\n2\n");
    AUTO_BUF got = {0};
    get_file("e", &got);
    assert_true(str_is(buf_str(&got), "\xef\xbb\xbfone\r\n2\r\n"));
}

static void edits_that_are_no_edits_are_refused(void **state)
{
    (void)state;
    put_file("e2", STR("x"));
    static const char *const edits[] = {"[]", "7", "[7]", "[{\"oldText\":\"x\"}]", "\"x\""};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char input[96];
        snprintf(input, sizeof input, "{\"path\":\"e2\",\"edits\":%s}", edits[i]);
        AUTO_RESULT r = call_tool("edit", input);
        assert_true(r.is_error);
        assert_has(r.text, "Edit tool input is invalid.");
    }
}

static void details_of_a_huge_edit_are_left_out(void **state)
{
    (void)state;
    AUTO_BUF content = {0};
    while (content.n < 5 << 20)
        buf_add_c(&content, "a line of a large file\n");
    buf_add_c(&content, "end");
    put_file("large", buf_str(&content));
    AUTO_RESULT r = call_tool(
        "edit", "{\"path\":\"large\",\"edits\":[{\"oldText\":\"end\",\"newText\":\"END\"}]}");
    assert_false(r.is_error);
    assert_null(json_object_get(r.json, "details"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_with_nul_is_refused),
        cmocka_unit_test(a_fifo_without_writer_reads_as_empty),
        cmocka_unit_test(a_fifo_without_reader_refuses_the_write),
        cmocka_unit_test(a_proc_file_without_size_is_read),
        cmocka_unit_test(an_image_over_20_mib_is_left_out),
        cmocka_unit_test(an_image_of_20_mib_is_whole),
        cmocka_unit_test(a_huge_file_is_read_in_part),
        cmocka_unit_test(permission_errors_use_nodes_words),
        cmocka_unit_test(parallel_edits_of_one_file_all_land),
        cmocka_unit_test(edit_hands_over_both_texts),
        cmocka_unit_test(edits_that_are_no_edits_are_refused),
        cmocka_unit_test(details_of_a_huge_edit_are_left_out),
    };
    return cmocka_run_group_tests(tests, hands_setup, hands_teardown);
}
