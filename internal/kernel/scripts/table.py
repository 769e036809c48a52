

def _modbox_setup():
    # Data frames and series as data: a Tabular Data Resource, as pandas itself makes with the option
    # display.html.table_schema, but with a bounded size, and for all data frames.
    import json
    from IPython import get_ipython
    from IPython.core.formatters import BaseFormatter
    from traitlets import ObjectName, Unicode

    kind = 'application/vnd.dataresource+json'
    max_rows, max_columns, max_bytes = 1000, 200, 1 << 20

    class TableFormatter(BaseFormatter):
        format_type = Unicode(kind)
        print_method = ObjectName('_repr_data_resource_')
        _return_type = (dict,)

    def table(value):
        try:
            frame = value if value.ndim == 2 else value.to_frame('values' if value.name is None else value.name)
            if not frame.columns.is_unique:
                return None  # a row is an object
            rows, columns = frame.shape
            frame = frame.iloc[:max_rows, :max_columns]
            while True:
                text = frame.to_json(orient='table', date_format='iso')
                if len(text) <= max_bytes or len(frame) == 0:
                    break
                frame = frame.iloc[:len(frame) // 2]
            data = json.loads(text)
            data['total_rows'], data['total_columns'] = rows, columns
            return data if len(text) <= max_bytes else None
        except Exception:
            return None  # values or names that the format does not have

    formatters = get_ipython().display_formatter.formatters
    formatter = TableFormatter(parent=get_ipython().display_formatter, enabled=True)
    for name in 'frame.DataFrame', 'series.Series':
        formatter.for_type_by_name('pandas.core.' + name.split('.')[0], name.split('.')[1], table)
    formatters[kind] = formatter


try:
    _modbox_setup()
finally:
    del _modbox_setup
