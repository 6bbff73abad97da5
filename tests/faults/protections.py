"""The source text that protects against each fault, and the test that must fail without it."""

from __future__ import annotations

from dataclasses import dataclass

_NEVER = "except ZeroDivisionError"
"""Replaces an ``except`` that would catch something."""


@dataclass(frozen=True)
class Protection:
    """A piece of source code on which the behaviour at a fault depends."""

    fault: int
    file: str
    """The file, relative to the package."""
    text: str
    """The text, which occurs once in the file."""
    without: str
    """What replaces it when it is removed."""
    test: str
    """The test, relative to ``tests``: ``path::name``."""

    def removed(self, source: str) -> str:
        """The source without the protection."""
        if (times := source.count(self.text)) != 1:
            raise ValueError(f"{self.file} has {self.text!r} {times} times, not once")
        return source.replace(self.text, self.without)


_INPUT = "faults/test_pack_input.py::test_"
_PROCESS = "faults/test_pack_process.py::test_"
_STATE = "stream/test_state.py::test_"
_FOUND = "fuzz/test_found.py::test_"
_IMAGES = "vision/test_unreadable_images.py::test_"
_JSON = "formats/jsonl.py"
_FORMAT = "formats/format.py"
_FILES = "formats/files.py"
_COLUMNS = "corpus/columns.py"
_ENGINE = "corpus/engines/local.py"
_OUTPUT = "corpus/output.py"
_STREAM = "stream/stream.py"

_OF_INPUT = (
    Protection(
        1, _FORMAT, "offset=record.offset,", "offset=None,",
        f"{_INPUT}01_a_truncated_last_line_is_quarantined_with_its_byte_offset",
    ),
    Protection(
        2, _JSON, "except RecordProblem as problem", f"{_NEVER} as problem",
        f"{_INPUT}02_bad_json_in_the_middle_is_quarantined",
    ),
    Protection(
        3, _JSON, 'data.decode("utf-8")', 'data.decode("utf-8", "replace")',
        f"{_INPUT}03_invalid_utf8_is_quarantined_and_never_replaced",
    ),
    Protection(
        4, _JSON, "data if offset else data.removeprefix(_BOM)", "data",
        f"{_INPUT}04_bom_crlf_line_separators_and_nul_keep_their_content",
    ),
    Protection(
        5, _JSON, 'if b"\\\\u" in data', 'if b"\\\\never" in data',
        f"{_INPUT}05_half_a_surrogate_pair_is_quarantined",
    ),
    Protection(
        6, "formats/record_kinds.py", "value = record[key]", "value = kind(record[key])",
        f"{_INPUT}06_a_null_text_is_quarantined_and_never_becomes_the_word_none",
    ),
    Protection(
        7, "text/encode.py", "good & (lengths == 0)", "good & (lengths < 0)",
        f"{_INPUT}07_a_document_without_a_token_is_counted_as_empty",
    ),
    Protection(
        8, "corpus/pack.py", 'if not manifest["rows"]:', "if False:",
        f"{_INPUT}08_only_empty_documents_give_a_valid_empty_output_and_a_warning",
    ),
    Protection(
        9, "text/encode.py", "~empty & ~too_long)", "~empty & ~too_long & (lengths > 1))",
        f"{_INPUT}09_a_document_of_one_token_is_kept",
    ),
    Protection(
        10, "plan/fragments.py", "overlong = whole.stops > longest",
        "overlong = whole.stops >= longest",
        f"{_INPUT}10_documents_near_the_row_length_follow_overlong_exactly",
    ),
    Protection(
        11, "plan/fragments.py", "ends[np.cumsum(continuations) - 1] = length", "pass",
        f"{_INPUT}11_a_document_of_many_rows_is_split_without_loss",
    ),
    Protection(
        12, "formats/jsonl.py", 'if size > max_bytes and not data.endswith(b"\\n"):', "if False:",
        f"{_INPUT}12_a_record_over_the_limit_is_quarantined",
    ),
    Protection(
        13, _JSON, "except RecursionError", _NEVER, f"{_INPUT}13_deep_nesting_is_quarantined"
    ),
    Protection(
        14, _JSON, "if len(record) < len(pairs):", "if False:",
        f"{_INPUT}14_duplicate_keys_and_infinity_are_quarantined",
    ),
    Protection(
        15, "formats/token_columns.py",
        "if wrong >= 0 and (vocab_size is None or wrong < vocab_size):", "if True:",
        f"{_INPUT}15_a_token_outside_the_vocabulary_is_an_error",
    ),
    Protection(
        16, "boundaries/checks.py", "wrong[1:] |= flat[1:] <= flat[:-1]", "pass",
        "test_boundaries.py::test_any_damage_to_valid_starts_is_rejected",
    ),
    Protection(
        16, "formats/token_columns.py", "if name in names:", "if False:",
        f"{_INPUT}16_rows_that_are_packed_already_are_refused",
    ),
    Protection(
        16, "formats/token_columns.py", "if isinstance(record.get(name), list):", "if False:",
        "corpus/test_columns.py::"
        "test_16_rows_that_are_packed_already_are_refused_in_later_files",
    ),
    Protection(
        17, "formats/token_columns.py", "        _compare(name, lengths, other, bad)\n",
        "        pass\n", f"{_INPUT}17_labels_of_another_length_are_quarantined",
    ),
    Protection(
        18, "gather.py", "starts: IntArray = begins - row_begins",
        "starts: IntArray = begins * 0",
        f"{_INPUT}18_boundaries_do_not_come_from_tokens",
    ),
    Protection(
        19, "vision/samples.py", "if found is not None and found != needed:", "if False:",
        "vision/test_bad_input.py::"
        "test_a_number_of_images_that_differs_from_the_placeholders_is_quarantined",
    ),
    Protection(
        20, "formats/compression.py",
        "except (EOFError, zlib.error, pa.ArrowException, OSError, UnicodeDecodeError)", _NEVER,
        f"{_INPUT}20_a_corrupt_parquet_file_is_an_error",
    ),
    Protection(
        20, "formats/parquet.py", "        page_checksum_verification=True,\n", "",
        f"{_INPUT}20_a_corrupt_parquet_file_is_an_error",
    ),
    Protection(
        20, "formats/arrow.py", "        require_sound(batch)\n", "",
        f"{_FOUND}an_arrow_file_with_wrong_offsets_is_a_typed_error_and_does_not_"
        "crash_the_process",
    ),
    Protection(
        20, "formats/tables.py", "_ = table.schema.names", "_ = None",
        f"{_FOUND}a_column_whose_name_is_not_utf_8_is_a_typed_error",
    ),
    Protection(
        20, "view/sources.py",
        'except _DAMAGE as error:\n        raise CorruptFile(f"{path} is damaged',
        f'{_NEVER} as error:\n        raise CorruptFile(f"{{path}} is damaged',
        f"{_FOUND}a_damaged_page_is_a_typed_error_when_rows_are_shown",
    ),
    Protection(
        21, "formats/arrays.py", "flat = pc.list_flatten(column)",
        "flat = pa.chunked_array([c.values for c in column.chunks], column.type.value_type)",
        f"{_INPUT}21_sliced_chunked_and_null_bearing_tables_are_packed_correctly",
    ),
    Protection(
        22, _COLUMNS, "if mine.get(name) not in (kind, _EMPTY):", "if False:",
        f"{_INPUT}22_tables_that_disagree_about_the_tokens_are_an_error",
    ),
    Protection(
        22, _COLUMNS, "if schema.names.count(name) > 1:", "if False:",
        f"{_INPUT}22_two_columns_of_one_name_are_an_error",
    ),
    Protection(
        23, _FILES, "if (now.st_size, changed_at) != (self.size, self.changed_at):",
        "if False:", f"{_INPUT}23_a_source_that_changes_while_it_is_read_is_an_error",
    ),
    Protection(
        24, _FILES, "if identity in seen:", "if False:",
        f"{_INPUT}24_the_same_file_twice_is_an_error",
    ),
    Protection(
        25, _COLUMNS, "if known or file in schemas:", "if True:",
        f"{_INPUT}25_an_empty_first_file_does_not_hide_labels",
    ),
    Protection(
        26, "plan/strategies/best_fit.py", "[0] * ((largest >> self._shift) + 1)",
        "[0] * (largest >> self._shift)",
        f"{_INPUT}26_row_lengths_near_a_power_of_two_pack_correctly",
    ),
)  # fmt: skip
_OF_STATES = (
    Protection(
        27, "seals.py", 'if state.get("checksum") != actual:', "if False:",
        f"{_STATE}any_flipped_bit_is_detected",
    ),
    Protection(
        28, "stream/row_stream.py", "        if self._over:\n            self._require_end()\n", "",
        f"{_FOUND}a_state_that_ends_the_stream_too_early_is_refused",
    ),
    Protection(
        28, "stream/state.py", "if set(plain) != set(names):", "if False:",
        f"{_STATE}a_forged_state_with_a_good_checksum_is_refused",
    ),
    Protection(
        29, "seals.py", "if version > FORMAT_VERSION:", "if False:",
        f"{_STATE}a_foreign_state_is_refused",
    ),
    Protection(
        29, "stream/state.py", 'return {**stream, "packer": {**packer, "tail": 1}}',
        "return stream",
        "stream/test_golden_state.py::"
        "test_a_state_of_every_version_resumes_to_the_batches_of_that_version",
    ),
    Protection(
        30, _STREAM, "if saved[name] != now[name] and", "if False and",
        f"{_STATE}other_options_are_refused_by_name",
    ),
    Protection(
        30, "corpus/manifest.py", "    if differing:\n", "    if False:\n",
        f"{_PROCESS}30_31_other_options_or_another_tokenizer_are_refused_on_resume",
    ),
    Protection(
        31, _STREAM, 'if state["tokenizer"] != self._tokenizer_digest:', "if False:",
        f"{_STATE}a_different_tokenizer_is_refused",
    ),
    Protection(
        32, "stream/pipeline.py", "if str(number) not in streams:", "if False:",
        "stream/test_ranks.py::test_the_state_of_one_rank_is_refused_if_others_are_needed",
    ),
    Protection(
        33, "stream/options.py", "names|prefetch|", "names|",
        f"{_STATE}options_that_do_not_affect_batches_may_differ",
    ),
    Protection(
        33, "stream/workers.py", "if not position.is_shared and", "if False and",
        "stream/test_loader_workers.py::test_a_state_of_one_worker_is_refused_by_another",
    ),
    Protection(
        34, "stream/shuffle.py", "        if read:\n", "        if True:\n",
        f"{_STATE}saving_twice_and_before_the_first_batch_is_exact",
    ),
    Protection(
        35, _STREAM, "if len(steps) > 1:", "if False:",
        "stream/test_ranks.py::test_states_of_different_steps_are_refused",
    ),
    Protection(
        36, "stream/reader.py", 'self.begin(read_count("the source\'s epoch", fields["epoch"]))',
        "self.begin(0)", f"{_STATE}every_step_around_the_end_of_an_epoch_is_exact",
    ),
    Protection(
        36, "stream/shuffle.py", "for _ in range(position):", "for _ in ():",
        f"{_STATE}every_step_around_the_end_of_an_epoch_is_exact",
    ),
)  # fmt: skip
_OF_PROCESSES = (
    Protection(
        37, "files.py",
        'temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")',
        "temporary = target", "test_files.py::test_37_a_file_appears_whole_or_not_at_all",
    ),
    Protection(
        37, "files.py", "temporary.unlink(missing_ok=True)", "pass",
        "test_files.py::test_37_a_file_appears_whole_or_not_at_all",
    ),
    Protection(
        37, "files.py", "            left.unlink()\n", "            pass\n",
        "faults/test_saved_states.py::test_37_temporary_files_of_a_killed_save_are_removed_by_the_next",
    ),
    Protection(
        38, "corpus/commits.py", "sha256_of(out / commit.file) == commit.sha256", "True",
        f"{_PROCESS}38_a_shard_with_other_bytes_than_were_committed_is_packed_again",
    ),
    Protection(
        39, "corpus/shards.py", "while view:  #", "if view:  #",
        f"{_PROCESS}39_short_writes_are_continued",
    ),
    Protection(
        39, _OUTPUT, "except OSError", _NEVER,
        f"{_PROCESS}39_a_full_or_failing_disk_is_an_error_and_resumable",
    ),
    Protection(
        39, "files.py", "for one in missing:", "for one in ():",
        "test_files.py::test_39_a_new_folder_and_those_above_it_are_synced",
    ),
    Protection(
        40, _OUTPUT, "if not os.access(out, os.W_OK | os.X_OK):", "if False:",
        f"{_PROCESS}40_a_read_only_output_is_an_error_before_any_work",
    ),
    Protection(
        41, _OUTPUT, "sweep(out)  # workers that", "pass  # workers that",
        f"{_PROCESS}41_temporary_files_of_stopped_workers_are_removed",
    ),
    Protection(
        41, "cli/pack.py", "except _Stopped", _NEVER,
        f"{_PROCESS}41_a_signal_leaves_a_resumable_output",
    ),
    Protection(
        42, _ENGINE, "waiting.appendleft(worker.partition)", "pass",
        f"{_PROCESS}42_a_partition_whose_worker_dies_is_packed_by_another",
    ),
    Protection(
        43, _ENGINE, 'f"In a worker process:\\n{trace}"', '""',
        f"{_PROCESS}43_an_unknown_error_in_a_worker_keeps_its_traceback",
    ),
    Protection(
        44, "corpus/lock.py",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass",
        f"{_PROCESS}44_a_second_writer_is_refused_and_does_not_affect_the_first",
    ),
    Protection(
        44, "corpus/lock.py", 'fcntl.flock(workers, fcntl.LOCK_EX | fcntl.LOCK_NB)',
        "pass", f"{_PROCESS}44_workers_of_a_dead_writer_are_waited_for",
    ),
    Protection(
        45, "corpus/job.py",
        "if shard.num_bytes and shard.num_bytes + batch.num_bytes > limit:", "if False:",
        "faults/test_pack_memory.py::"
        "test_45_memory_is_bounded_by_the_partition_not_by_the_corpus",
    ),
    Protection(
        46, _FILES, "visible = sorted(name for name in files if not _is_hidden(name))",
        "visible = [name for name in files if not _is_hidden(name)]",
        f"{_PROCESS}46_the_order_of_the_directory_does_not_matter",
    ),
    Protection(
        47, "corpus/engines/ray/scheduler.py", "if self._tries[key] < most:", "if False:",
        "cluster/test_deaths.py::"
        "test_fault_47_a_worker_dies_between_rename_and_return_on_each_of_two_nodes",
    ),
    Protection(
        48, "stream/reader.py", "self._broken = True\n                if", "if",
        "stream/test_retries.py::test_network_failures_never_shorten_an_epoch",
    ),
    Protection(
        49, "stream/reader.py", "if again.value != self._since_mark.value:", "if False:",
        "stream/test_retries.py::"
        "test_a_source_that_changes_when_read_again_is_an_error",
    ),
)  # fmt: skip
_OF_HOSTILE = (
    Protection(
        50, "formats/__init__.py", '".txt": "text",', '".txt": "text",\n    ".pkl": "text",',
        f"{_INPUT}50_pickles_are_refused_as_inputs",
    ),
    Protection(
        51, "compat/recipes/names.py",
        "if name not in _TABLE and name not in _registered:", "if False:",
        "compat/recipes/test_hostile.py::test_fault_51_a_name_outside_the_table_is_never_imported",
    ),
    Protection(
        52, "packed/manifest.py", "or not pattern.fullmatch(name)", "",
        "packed/test_packed_dataset.py::test_52_a_manifest_may_not_name_files_outside_its_folder",
    ),
    Protection(
        53, "formats/compression.py",
        "if expanded > max(ALWAYS_ALLOWED, MAX_EXPANSION * self._size):", "if False:",
        f"{_INPUT}53_a_decompression_bomb_is_an_error",
    ),
    Protection(
        54, "vision/samples.py", "if patches is not None and rows is not None and rows != patches:",
        "if False:",
        "faults/test_hostile.py::"
        "test_54_a_huge_grid_of_patches_is_an_error_and_quarantined_within_a_budget",
    ),
    Protection(
        54, "vision/source.py",
        'any(module.partition(".")[0] == "PIL" for module in modules)',
        "False", f"{_IMAGES}an_image_that_pillow_rejects_is_quarantined_within_the_budget",
    ),
    Protection(
        54, "vision/source.py", ", _raising_module(error))", ",)",
        f"{_IMAGES}an_image_that_pillow_rejects_is_an_error_that_names_the_sample",
    ),
    Protection(
        54, "vision/source.py",
        "if sample is End.OF_SAMPLES and isinstance(self._last, _Unreadable):", "if False:",
        f"{_IMAGES}a_generator_that_ended_at_an_image_is_an_error_and_never_a_short_epoch",
    ),
    Protection(
        54, "vision/iterator.py", "num_read=progress.num_read + 1,",
        "num_read=progress.num_read + (num_new > progress.num_new),",
        f"{_IMAGES}a_run_resumes_exactly_after_an_unreadable_image",
    ),
    Protection(
        54, "vision/source.py",
        'if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:',
        "if False:",
        f"{_IMAGES}errors_that_are_not_about_the_image_are_raised_with_a_note_of_the_sample",
    ),
    Protection(
        55, "text/tokenizer_file.py", 'if "auto_map" in config:', "if False:",
        "faults/test_hostile.py::"
        "test_55_a_tokenizer_that_needs_its_own_code_is_refused_and_nothing_is_run",
    ),
    Protection(
        55, "text/chat/template.py", "except (OSError, ValueError, TypeError, KeyError)",
        _NEVER,
        "faults/test_hostile.py::"
        "test_a_folder_that_is_not_a_tokenizer_is_a_typed_error_also_for_conversations",
    ),
    Protection(
        56, "cli/app.py", "printable(text)), to_stderr=True)", "text), to_stderr=True)",
        "corpus/test_pack_command.py::test_56_control_characters_in_names_are_escaped",
    ),
    Protection(
        56, "report/page.py", 'for character in "<>&":', 'for character in "":',
        "report/test_page.py::test_fault_56_hostile_text_cannot_close_its_element",
    ),
    Protection(
        56, "view/display.py", 'return printable(decode(tokens), keep="\\n\\t")',
        "return decode(tokens)",
        "view/test_inspect.py::test_fault_56_control_characters_and_markup_stay_text",
    ),
    Protection(
        56, "view/display.py", 'return printable(text[:most], keep="\\n\\t") + (',
        "return text[:most] + (",
        "view/test_inspect.py::test_fault_56_control_characters_and_markup_stay_text",
    ),
)  # fmt: skip
PROTECTIONS = (*_OF_INPUT, *_OF_STATES, *_OF_PROCESSES, *_OF_HOSTILE)
